"""Patches of finalizers and owner references. A patch removes only the controller's entries (R2, P2, P6)."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.apimachinery.finalizers import owner_and_finalizer_removal_patch, removal_patch
from controller.apimachinery.owner_references import adoption_patch, release_patch
from informers.meta import ObjectMeta, OwnerReference
from tests.builders import reference_to, replicaset, vmi
from tests.fakes.patches import PatchError, json_patch

FINALIZER = "pool.kubevirt.io/finalizer"
POOL = "uid-of-the-pool"


def owner(uid: str) -> OwnerReference:
    return OwnerReference(api_version="v1", kind="Thing", name=f"name-of-{uid}", uid=uid, block_owner_deletion=False)


def meta(*, finalizers: tuple[str, ...] | None = None, owners: tuple[str, ...] | None = None) -> ObjectMeta:
    return ObjectMeta(
        name="vm-0",
        uid="uid-of-the-vm",
        resource_version="42",
        finalizers=finalizers,
        owner_references=None if owners is None else tuple(map(owner, owners)),
    )


def document(held: ObjectMeta) -> dict[str, Any]:
    fields = msgspec.json.decode(msgspec.json.encode(held), type=dict[str, Any])
    return {"metadata": {name: value for name, value in fields.items() if value is not None}, "spec": {"a": 1}}


def after(held: ObjectMeta, patch: bytes) -> dict[str, Any]:
    return json_patch(document(held), msgspec.json.decode(patch))


others = st.lists(st.sampled_from(["a/b", "c", "orphan"]), max_size=4)


@given(others, others)
def test_p6_our_finalizer_is_removed_and_the_others_stay_in_order(before: list[str], behind: list[str]):
    held = meta(finalizers=(*before, FINALIZER, *behind), owners=(POOL,))
    wanted = document(held)
    wanted["metadata"]["finalizers"] = [*before, *behind]
    assert after(held, removal_patch(held, FINALIZER)) == wanted


@pytest.mark.parametrize("now", [(), ("a/b", FINALIZER), ("a/b", "c")])
def test_p6_the_server_rejects_a_removal_if_the_finalizers_have_changed(now: tuple[str, ...]):
    patch = msgspec.json.decode(removal_patch(meta(finalizers=(FINALIZER, "c")), FINALIZER))
    with pytest.raises(PatchError):
        json_patch(document(meta(finalizers=now)), patch)


def test_p6_a_removal_succeeds_although_the_vm_changes_often():
    held = meta(finalizers=(FINALIZER,), owners=(POOL,))
    changed = document(held)
    changed["metadata"]["resourceVersion"] = "4711"
    for patch in (removal_patch(held, FINALIZER), owner_and_finalizer_removal_patch(held, FINALIZER, POOL)):
        assert json_patch(changed, msgspec.json.decode(patch))["metadata"]["finalizers"] == []


owner_uids = st.lists(st.sampled_from(["first", "second"]), max_size=3)


@given(others, owner_uids, owner_uids, st.integers(0, 2), st.booleans())
def test_p2_only_this_owner_reference_and_our_finalizer_are_removed(
    finalizers: list[str], before: list[str], behind: list[str], references: int, has_pool_finalizer: bool
):
    held = meta(
        finalizers=(*finalizers, *([FINALIZER] if has_pool_finalizer else ()), *finalizers),
        owners=(*before, *[POOL] * references, *behind),
    )
    wanted = document(held)
    wanted["metadata"]["finalizers"] = [*finalizers, *finalizers]
    wanted["metadata"]["ownerReferences"] = [msgspec.to_builtins(owner(uid)) for uid in (*before, *behind)]
    assert after(held, owner_and_finalizer_removal_patch(held, FINALIZER, POOL)) == wanted


def test_p2_the_server_rejects_the_removal_of_another_owner():
    held = meta(owners=(POOL, "first"))
    patch = msgspec.json.decode(owner_and_finalizer_removal_patch(held, FINALIZER, POOL))
    with pytest.raises(PatchError):
        json_patch(document(meta(owners=("first", POOL))), patch)


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
