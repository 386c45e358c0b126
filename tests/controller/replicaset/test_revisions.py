"""R17: a set keeps its templates as ControllerRevisions, and deletes unused ones."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from controller.apimachinery.conditions import find_true
from controller.kubevirt.annotations import EARLY_FAILURES, READY_REVISION, ROLLED_OUT, TEMPLATE_HASH
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS
from controller.kubevirt.vm_types import ControllerRevision
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicas.conditions import REPLICA_FAILURE
from controller.replicas.revisions import former_set_of, hash_of_set_revision, kept_revision
from controller.replicaset.back_off import annotation_of
from controller.replicaset.plan import plan
from controller.replicaset.revisions import SPREAD_S, spread_s
from controller.replicaset.snapshot import REVISION_INDEXES, RevisionCache
from controller.replicaset.status import next_status, outcome_notices
from controller.replicaset.triggers import replicasets_of_revision
from controller.runtime.actions import Action, Create, Delete, Done, Patch, Plan, Rejected
from controller.runtime.result import After
from informers.meta import ObjectKey
from informers.store import Added, Removed, Store, Updated
from tests.builders import (
    LABELS,
    OWNER_REFERENCE,
    REPLICASETS,
    history,
    replicaset,
    revision,
    seconds_ago,
    snapshot,
    vmi,
)
from tests.controller.replicaset.simulation import KEY, ReplicaSetSimulation, replicaset_document
from tests.fakes.requests import refusal
from tests.pool_builders import ANOTHER_CONTROLLER
from tests.strategies import template_hash_of

FORBIDDEN = refusal(403, "Forbidden", "exceeded quota: revisions")


def template(number: int, **fields: Any) -> ReplicaSet:
    """The set with its template number `number`. Each template has its own generation."""
    spec = json.dumps({"domain": {"devices": {}}, "hostname": f"v{number}"}).encode()
    return replicaset(generation=number, spec=spec, **fields)


def members(owner: ReplicaSet, *hashes: str) -> list[VirtualMachineInstance]:
    return [vmi(f"test{n}", owner=owner, labels={**LABELS, TEMPLATE_HASH: each}) for n, each in enumerate(hashes)]


def at_rest(number: int, **fields: Any) -> tuple[ReplicaSet, list[VirtualMachineInstance]]:
    owner = template(number, **fields)
    return owner, members(owner, *[template_hash_of(owner)] * 3)


def of_revisions(todo: Plan) -> list[Action]:
    return [action for action in todo.actions if action.resource is CONTROLLER_REVISIONS]


def names(actions: Iterable[Action]) -> list[str]:
    return [action.key.name for action in actions]


def test_r17_the_revision_is_created_before_the_first_vmis_and_a_failure_does_not_stop_them():
    owner = template(4)
    first, *others = plan(snapshot(owner, history=history(since_s=0))).stages
    [create] = first.actions
    assert isinstance(create, Create)
    assert not first.essential
    assert [action.resource for stage in others for action in stage.actions] == [VMIS] * 3
    assert create.key == ObjectKey("default", f"testreplicaset-{template_hash_of(owner)}")
    assert create.owner_uid == owner.metadata.uid
    meta, spec = create.key._asdict(), {"domain": {"devices": {}}, "hostname": "v4"}
    assert json.loads(create.body) == {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {**meta, "labels": {TEMPLATE_HASH: template_hash_of(owner)}, "ownerReferences": [OWNER_REFERENCE]},
        "revision": 4,
        "data": {"template": {"metadata": {"labels": LABELS, "name": "test"}, "spec": spec}},
    }


def test_r17_the_data_has_the_bytes_that_the_api_server_would_encode():
    owner = replicaset(template_annotations={"b": "<2>", "a": "1"})
    [create] = of_revisions(plan(snapshot(owner, history=history())))
    assert isinstance(create, Create)
    expected = (
        rb'"data":{"template":{"metadata":{"annotations":{"a":"1","b":"\u003c2\u003e"},'
        rb'"labels":{"myvmi":"myvmi"},"name":"test"},"spec":{"domain":{"devices":{}}}}}'
    )
    assert expected in create.body


def test_r17_an_existing_set_writes_its_first_revision_in_its_turn_after_the_start():
    owner, vmis = at_rest(1)
    turn_s = spread_s(owner.metadata.uid)
    early = plan(snapshot(owner, vmis, history=history(since_s=turn_s - 5)))
    assert (early.actions, early.requeue_after_s) == ((), 5)
    due = plan(snapshot(owner, vmis, history=history(since_s=turn_s)))
    assert names(due.actions) == [f"testreplicaset-{template_hash_of(owner)}"]
    assert due.requeue_after_s is None


def test_r17_a_set_that_is_as_young_as_the_controller_does_not_wait_for_its_turn():
    owner, vmis = at_rest(1)
    young = replace(owner, metadata=replace(owner.metadata, creation_timestamp=seconds_ago(80)))
    assert len(plan(snapshot(young, vmis, history=history(since_s=20))).actions) == 1
    assert plan(snapshot(young, vmis, history=history(since_s=10))).actions == ()


def test_r17_a_template_that_is_rolled_out_again_has_the_newest_number():
    owner = replace(template(1), metadata=replace(template(1).metadata, generation=3))
    vmis, first, second = members(owner, template_hash_of(template(2))), revision(template(1)), revision(template(2))
    stage = plan(snapshot(owner, vmis, history=history(first, second))).stages[0]
    [patch] = stage.actions
    assert isinstance(patch, Patch)
    assert (patch.key, stage.essential) == (first.metadata.key, False)
    body = json.loads(patch.body)
    assert body["revision"] == 3
    assert body["metadata"]["annotations"][ROLLED_OUT] == "2026-08-01T12:00:00Z"
    [notice] = outcome_notices([Rejected(patch, FORBIDDEN)])
    assert notice.message == f"Error updating revision {patch.key.name}: {FORBIDDEN}"
    numbered = history(replace(first, revision=3), second)
    assert of_revisions(plan(snapshot(owner, vmis, history=numbered))) == []
    third = members(owner, *(template_hash_of(template(number)) for number in (2, 4)))
    known = snapshot(owner, third, history=history(first, replace(second, revision=5), revision(template(4))))
    earlier = template_hash_of(template(4))
    assert next_status(known, ()).current_revision == earlier, "it was rolled out before the other"


@pytest.mark.parametrize(
    "owner",
    [template(1, paused=True), template(1, deleting=True), template(1, match_labels={"app": "other"})],
    ids=["paused", "deleting", "invalid"],
)
def test_r17_a_set_that_creates_nothing_now_creates_no_revision(owner: ReplicaSet):
    assert plan(snapshot(owner, history=history())).actions == ()


def test_r17_a_set_with_a_very_long_name_keeps_a_history_and_finds_its_former_revisions():
    longest = template(1, name="x" * 243)
    [create] = of_revisions(plan(snapshot(longest, history=history())))
    former = revision(longest, owned=False)
    assert create.key.name == former.metadata.name
    store = Store(indexes=REVISION_INDEXES)
    store.apply(former)
    cache = RevisionCache(store, 5)
    for key in (longest.metadata.key, *former_set_of(former)):
        assert cache.orphaned(key) == (former,)


def test_r17_the_newest_unused_revisions_stay_and_those_that_vmis_use():
    owner = template(9)
    vmis = members(owner, *[template_hash_of(owner)] * 2, template_hash_of(template(1)))
    kept = [revision(template(number)) for number in (1, 2, 3, 4, 9)]
    todo = plan(snapshot(owner, vmis, history=history(*kept, keep=1)))
    assert names(todo.actions) == [revision(template(number)).metadata.name for number in (3, 2)]
    worked = {READY_REVISION: revision(template(2)).metadata.name}
    kept[-1] = replace(kept[-1], metadata=replace(kept[-1].metadata, annotations=worked))
    assert names(plan(snapshot(owner, vmis, history=history(*kept, keep=1))).actions) == [kept[2].metadata.name]
    [delete, _] = todo.actions
    assert isinstance(delete, Delete)
    assert (delete.uid, delete.version, delete.owner_uid) == (f"uid-{delete.key.name}", "1", owner.metadata.uid)


@pytest.mark.parametrize(("ready_for_s", "worked"), [(30, False), (660, True)])
def test_r17_the_template_of_a_vmi_that_replaced_a_failure_has_worked_after_ten_minutes(ready_for_s: int, worked: bool):
    owner, old = template(9), revision(template(3))
    note = annotation_of(1, seconds_ago(900), seconds_ago(900))
    labels = {**LABELS, TEMPLATE_HASH: template_hash_of(template(3))}
    member = vmi("a", owner=owner, labels=labels, ready_for_s=ready_for_s, annotations={EARLY_FAILURES: note})
    [create] = of_revisions(plan(snapshot(owner, [member], history=history(old))))
    assert isinstance(create, Create)
    notes = json.loads(create.body)["metadata"].get("annotations") or {}
    assert notes.get(READY_REVISION) == (old.metadata.name if worked else None)


def test_r17_revisions_of_an_earlier_set_of_the_same_name_are_deleted_if_no_owner_controls_them():
    owner, vmis = at_rest(2)
    left = [revision(template(1), owned=False), revision(template(3), owned=False, deleting=True)]
    [delete] = plan(snapshot(owner, vmis, history=history(revision(owner), orphaned=left))).actions
    assert isinstance(delete, Delete)
    assert (delete.key.name, delete.owner_uid, delete.version) == (left[0].metadata.name, "", "1")


def test_r17_a_revision_that_cannot_be_written_is_a_failure_of_the_set_after_all_others():
    owner, vmis = at_rest(1)
    seen = snapshot(owner, vmis, history=history())
    [create] = plan(seen).actions
    outcomes = (Rejected(create, FORBIDDEN),)
    [notice] = outcome_notices(outcomes)
    assert notice.reason == "FailedCreate"
    assert notice.message == f"Error creating revision {create.key.name}: {FORBIDDEN}"
    quota = refusal(403, "Forbidden", "exceeded quota: few")
    both = (*outcomes, Rejected(replace(create, resource=VMIS), quota))
    for refused, first in ((outcomes, FORBIDDEN), (both, quota)):
        failure = find_true(next_status(seen, refused).conditions, REPLICA_FAILURE)
        assert failure is not None
        assert failure.message == str(first)
    assert outcome_notices((Done(create),)) == ()


# The cache


def test_r17_a_set_knows_its_revision_by_name_if_a_policy_removes_the_label():
    made = revision(template(3)).metadata
    assert hash_of_set_revision(replace(made, labels=None)) == template_hash_of(template(3))
    assert hash_of_set_revision(replace(made, name="web-other", labels=None)) == ""


def test_r17_the_cache_keeps_the_revisions_of_sets_and_no_data_of_those_that_no_set_controls():
    made, orphan = revision(template(3)), revision(template(3), owned=False)
    assert kept_revision(made) == made
    assert kept_revision(orphan) == replace(orphan, data=Raw())


def test_r17_a_set_waits_for_its_revision_that_has_lost_its_owner_and_its_label():
    made = revision(template(3))
    lost = kept_revision(changed(made, owner_references=None, labels=None))
    assert lost is not None
    assert (lost.metadata.key, bytes(lost.data)) == (made.metadata.key, b"")
    stranger = replace(ANOTHER_CONTROLLER, kind="VirtualMachine")
    assert kept_revision(changed(made, owner_references=(stranger,), labels=None)) is None


def test_r17_the_cache_drops_a_revision_without_owner_whose_name_is_not_that_of_its_hash():
    made = revision(template(3), owned=False)
    assert kept_revision(replace(made, metadata=replace(made.metadata, name="web-other"))) is None


# Triggers


def changed(made: ControllerRevision, **fields: Any) -> ControllerRevision:
    return replace(made, metadata=replace(made.metadata, **fields))


def test_r16_r17_a_revision_triggers_its_set_when_it_comes_goes_or_loses_its_owner():
    made, orphan = revision(template(1)), revision(template(1), owned=False)
    wake = [(ObjectKey("default", "testreplicaset"), 0.0)]
    for change in (Added(made), Removed(made), Updated(made, orphan), Removed(orphan), Added(orphan)):
        assert list(replicasets_of_revision(change)) == wake
    assert list(replicasets_of_revision(Updated(made, changed(made, resource_version="2")))) == []
    [owner] = made.metadata.owner_references or ()
    foreign = changed(made, owner_references=(replace(owner, kind="StatefulSet"),))
    assert list(replicasets_of_revision(Added(foreign))) == []


# The reconciler


def simulation() -> ReplicaSetSimulation:
    made = ReplicaSetSimulation()
    made.server.put(REPLICASETS, replicaset_document(replicas=2))
    made.process.catch_up()
    return made


def edit(made: ReplicaSetSimulation, version: int) -> None:
    spec = {"domain": {"devices": {}}, "hostname": f"v{version}"}
    generation = made.owner.metadata.generation or 0
    change = {"metadata": {"generation": generation + 1}, "spec": {"template": {"spec": spec}}}
    made.server.change(REPLICASETS, KEY, change)


def stored(made: ReplicaSetSimulation) -> set[str]:
    templates = [each["data"]["template"] for each in made.server.documents(CONTROLLER_REVISIONS).values()]
    return {each["spec"].get("hostname", "") for each in templates}


@pytest.mark.looptime
@pytest.mark.parametrize("writes", range(5))
async def test_r17_after_a_crash_at_any_write_each_template_has_one_revision(writes: int):
    made = simulation()
    await made.process.kill_after(writes, made.reconcile())
    made.restart()
    made.advance(SPREAD_S)
    await made.come_to_rest()
    edit(made, 1)
    made.process.catch_up()
    await made.process.kill_after(min(writes, 1), made.reconcile())
    made.restart()
    await made.come_to_rest()
    assert stored(made) == {"", "v1"}
    assert len(made.server.documents(CONTROLLER_REVISIONS)) == 2
    assert len(made.active) == 2


@pytest.mark.looptime
async def test_r15_r17_revisions_that_a_deleted_set_left_without_owner_are_deleted():
    made = simulation()
    await made.come_to_rest()
    made.server.remove(REPLICASETS, KEY)
    for name in made.server.documents(CONTROLLER_REVISIONS):
        made.server.change(CONTROLLER_REVISIONS, ObjectKey("default", name), {"metadata": {"ownerReferences": None}})
    made.process.catch_up()
    report = await made.reconcile()
    assert isinstance(report.result, After)
    assert made.server.documents(CONTROLLER_REVISIONS) == {}
    assert len(made.server.documents(VMIS)) == 2
