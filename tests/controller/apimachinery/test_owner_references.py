import msgspec

from controller.apimachinery.owner_references import adoption_patch, release_patch
from informers.meta import OwnerReference
from tests.builders import reference_to, replicaset, vmi

OWNER = replicaset()
FOREIGN = OwnerReference(api_version="v1", kind="ConfigMap", name="notes", uid="uid-of-notes")


def decoded(body: bytes) -> dict:
    return msgspec.json.decode(body)["metadata"]


def test_r2_an_adoption_keeps_other_owners_and_has_the_version_that_was_read():
    child = vmi(owners=(FOREIGN,), version="42").metadata
    patch = decoded(adoption_patch(child, reference_to(OWNER)))
    assert (patch["uid"], patch["resourceVersion"]) == (child.uid, "42")
    assert patch["ownerReferences"] == [msgspec.to_builtins(FOREIGN), msgspec.to_builtins(reference_to(OWNER))]


def test_r2_a_plain_reference_of_the_same_owner_becomes_the_controlling_one():
    child = vmi(owners=(reference_to(OWNER, controller=False),)).metadata
    patch = decoded(adoption_patch(child, reference_to(OWNER)))
    assert patch["ownerReferences"] == [msgspec.to_builtins(reference_to(OWNER))]


def test_r2_a_release_removes_only_the_reference_of_this_owner():
    child = vmi(owner=OWNER, owners=(FOREIGN,), version="42").metadata
    patch = decoded(release_patch(child, OWNER.metadata.uid))
    assert patch == {"uid": child.uid, "resourceVersion": "42", "ownerReferences": [msgspec.to_builtins(FOREIGN)]}
