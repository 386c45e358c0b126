"""R14: a VMI that has lost its template hash counts as one of the template from which its set has created it."""

import pytest
from msgspec.structs import replace

from controller.apimachinery.conditions import time_text
from controller.kubevirt.annotations import ROLLBACK, ROLLED_BACK, ROLLED_OUT, TEMPLATE_HASH
from controller.replicaset.intent import parse_intent
from controller.replicaset.own_hashes import with_own_hashes
from controller.replicaset.plan import plan
from controller.replicaset.status import next_status
from tests.builders import LABELS, history, replicaset, revision, seconds_ago, snapshot, vmi
from tests.strategies import template_hash_of

ROLLING = {"vmherd.dev/rolling-update": "maxUnavailable=1"}
OLD = replicaset(replicas=1, generation=1, spec=b'{"domain":{},"hostname":"old"}')
NEW = replicaset(replicas=1, generation=2, annotations=ROLLING)
OLD_HASH, NEW_HASH = map(template_hash_of, (OLD, NEW))
BASE = parse_intent(NEW).template.base
OWN = f"{BASE}bcdfg"
RETURNED = ROLLING | {ROLLBACK: "stalled"}
BACK = f"{NEW_HASH} to testreplicaset-{OLD_HASH}"


def seen(hashed, *, name=OWN, age_s=50, rolled_out_s=None, annotations=ROLLING, revisions=(OLD, NEW), twin=False):
    """A set with revisions of 200 and of 100 seconds, and with one VMI, or two."""
    notes = {ROLLED_OUT: time_text(seconds_ago(rolled_out_s))} if rolled_out_s is not None else None
    stored = [
        replace(made, metadata=replace(made.metadata, creation_timestamp=seconds_ago(age), annotations=notes))
        for made, age in zip(map(revision, revisions), (200, 100), strict=False)
    ]
    owner = replace(NEW, metadata=replace(NEW.metadata, annotations=annotations))
    labels = {**LABELS, **({TEMPLATE_HASH: hashed} if hashed is not None else {})}
    vmis = [vmi(name, owner=owner, labels=labels, age_s=age_s)]
    vmis += [vmi(f"{BASE}zzzzz", owner=owner, labels=labels, age_s=age_s + 100)] if twin else []
    return with_own_hashes(snapshot(owner, vmis, history=history(*stored)))


@pytest.mark.parametrize(
    ("hashed", "circumstances", "counts"),
    [
        ("bogus", {}, True),
        ("bogus", {"name": f"{BASE}bcdf"}, False),
        ("bogus", {"name": "made-by-hand"}, False),
        ("bogus", {"age_s": 150}, False),
        ("bogus", {"rolled_out_s": 40}, True),
        ("bogus", {"revisions": (OLD,)}, False),
        (NEW_HASH, {"revisions": (OLD,)}, True),
        (OLD_HASH, {}, False),
        (NEW_HASH, {}, True),
        (None, {"annotations": {**ROLLING, "vmherd.dev/adopted-template": OLD_HASH}}, True),
        (None, {"age_s": 150}, False),
        (None, {"age_s": 250}, True),
    ],
)
def test_r14_a_vmi_younger_than_the_rollout_with_a_name_of_the_set_has_the_present_template(
    hashed, circumstances, counts
):
    found = seen(hashed, **circumstances)
    assert next_status(found, ()).updated_replicas == int(counts)
    assert ("delete" in {type(each).__name__.lower() for each in plan(found).actions}) is not counts


@pytest.mark.parametrize(("note", "counts"), [(f" at {time_text(seconds_ago(60))}", True), ("", False)])
def test_r14_p29_after_a_return_a_younger_vmi_has_the_earlier_template(note, counts):
    found = seen("bogus", annotations={**RETURNED, ROLLED_BACK: BACK + note})
    assert [each.metadata.labels[TEMPLATE_HASH] for each in found.members] == [OLD_HASH if counts else "bogus"]


def test_r14_a_template_that_was_rolled_out_again_is_that_of_the_vmis_after_it():
    ages = {"bcdfg": 150, "ghjkl": 90, "mnpqr": 30}
    owner = replace(OLD, metadata=replace(NEW.metadata, annotations=ROLLING, generation=3))
    again = {ROLLED_OUT: time_text(seconds_ago(60))}
    stored = [
        replace(made, metadata=replace(made.metadata, creation_timestamp=seconds_ago(age), annotations=notes))
        for made, age, notes in ((revision(OLD), 200, again), (revision(NEW), 100, None))
    ]
    vmis = [vmi(BASE + end, owner=owner, labels=LABELS, age_s=age) for end, age in ages.items()]
    found = with_own_hashes(snapshot(owner, vmis, history=history(*stored)))
    hashes = {each.metadata.name[-5:]: each.metadata.labels[TEMPLATE_HASH] for each in found.members}
    assert hashes == {"bcdfg": OLD_HASH, "ghjkl": NEW_HASH, "mnpqr": OLD_HASH}


def test_r14_before_a_new_template_has_its_revision_vmis_without_a_hash_keep_the_earlier_one():
    found = seen(None, revisions=(OLD,))
    assert [each.metadata.labels[TEMPLATE_HASH] for each in found.members] == [OLD_HASH]
    assert "vmherd.dev/adopted-template" not in str([getattr(each, "body", "") for each in plan(found).actions])


def test_r14_an_older_vmi_with_the_same_label_stays_outdated():
    found = seen("bogus", twin=True)
    hashes = {each.metadata.name: each.metadata.labels[TEMPLATE_HASH] for each in found.members}
    assert hashes == {OWN: NEW_HASH, f"{BASE}zzzzz": OLD_HASH}
