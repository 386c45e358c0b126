"""P12, P13 and P14: VMs get the current template and then their VMIs, within limits and in steps with pauses."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from controller.kubevirt import annotations as names
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS, VMS
from controller.pool.members.ledger import outage_of
from controller.pool.plan import plan
from controller.pool.spec.partition import ALL_ORDINALS, parse_partition, step_note
from controller.pool.status import next_status
from controller.runtime.actions import Create, Delete, Patch, ThreeWayMerge
from tests.builders import NOW
from tests.pool_builders import LABELS, intent_of, pool, vm_spec, vmi, vms
from tests.pool_scenes import (
    DESCENDING,
    announced_for,
    during_update,
    limited_pool,
    merged,
    new_vms,
    noted,
    old_vmis,
    old_vms,
    restarted,
    updated_pool,
)


def test_p12_outdated_vms_are_updated_after_the_new_revision_is_created():
    owner = updated_pool()
    keep, change = plan(during_update(owner, vms(owner, 0, 1, 2), current=False)).stages
    assert [(each.resource, each.key.name) for each in keep.actions] == [(CONTROLLER_REVISIONS, "web-2")]
    assert [each.key.name for each in change.actions] == ["web-0", "web-1", "web-2"]
    assert keep.essential
    assert not change.essential, "a VM that cannot be patched does not delay other VMs"


def test_p12_a_merge_compares_the_old_and_the_new_template_with_indexes():
    before = pool(spec=vm_spec(image="v1", disks=["data"]))
    owner = updated_pool(spec=vm_spec(image="v2", disks=["data"]))
    [_, change, *_] = plan(during_update(owner, vms(owner, 0, 1, 2), before=before, current=False)).actions
    old, new = json.loads(change.old), json.loads(change.new)
    assert change.uid == "uid-web-0"
    assert [each["metadata"]["labels"][names.REVISION_NAME] for each in (old, new)] == ["web-1", "web-2"]
    for shape, image, name in ((old, "v1", "web-1"), (new, "v2", "web-2")):
        inner = shape["spec"]["template"]
        assert inner["metadata"]["labels"][names.REVISION_NAME] == name
        assert inner["spec"]["volumes"][0]["containerDisk"]["image"] == image
        assert shape["spec"]["dataVolumeTemplates"][0]["metadata"]["name"] == "data-0"
    assert set(old) == set(new) == {"metadata", "spec"}


@pytest.mark.parametrize("made_from", ["web-7", None])
def test_p12_a_vm_with_an_unknown_revision_is_outdated(made_from):
    owner = updated_pool(replicas=1)
    [change] = plan(during_update(owner, vms(owner, 0, revision=made_from), vmis=())).actions
    assert isinstance(change, ThreeWayMerge)
    assert change.old == b"{}"


SELECTED = {
    "at most burst": ({}, {"burst": 2}, ["web-0", "web-1"]),
    "in the order of the policy": ({"updateStrategy": DESCENDING}, {}, ["web-2", "web-1", "web-0"]),
}


@pytest.mark.parametrize(("fields", "more", "expected"), SELECTED.values(), ids=SELECTED)
def test_p12_p13_vms_are_updated_and_restarted_in_order_and_at_most_burst_in_a_pass(fields, more, expected):
    owner = updated_pool(**fields)
    assert merged(plan(during_update(owner, vms(owner, 0, 1, 2), **more))) == expected
    begun = new_vms(owner, 0, 1, 2)
    assert restarted(plan(during_update(owner, begun, vmis=old_vmis(begun), **more))) == expected


def test_p13_if_the_vmi_template_is_the_same_only_the_label_is_patched():
    owner = updated_pool(spec=vm_spec(image="v1"), labels={**LABELS, "new": "label"}, maxUnavailable=1)
    machines = vms(owner, 0, 1, 2, revision="web-2")
    patches = plan(during_update(owner, machines, vmis=old_vmis(machines))).actions
    assert [(each.resource, each.key.name) for each in patches] == [(VMIS, f"web-{n}") for n in range(3)]
    assert all(isinstance(each, Patch) for each in patches)
    assert json.loads(patches[0].body) == {"metadata": {"uid": "uid-web-0", "labels": {names.REVISION_NAME: "web-2"}}}


def test_p13_if_the_vmi_template_differs_or_is_not_known_the_vmi_is_deleted():
    owner = updated_pool()
    machines = new_vms(owner, 0, 1, 2)
    for name in ("web-1", "web-9"):
        todo = plan(during_update(owner, machines, vmis=[vmi(each, revision=name) for each in machines]))
        assert [each.resource for each in todo.actions] == [VMIS] * 3
        assert restarted(todo) == ["web-0", "web-1", "web-2"]


UNLABELLED = {"spec": vm_spec(image="v2")}
"""A user removed the revision label from the VM's template. If the VM restarts, its new VMI has no label either."""

NOT_RESTARTED = {
    "the pool is opportunistic": ({"updateStrategy": {"opportunistic": {}}}, {}, {}),
    "the VMI has the revision of its VM": ({}, {}, {"revision": "web-2"}),
    "the VMI is terminating": ({}, {}, {"deleting": True}),
    "a restart would change nothing": ({}, UNLABELLED, {"revision": None}),
    "the VM is being halted": ({"spec": vm_spec(image="v2", run_strategy="Halted")}, {"strategy": "Halted"}, {}),
}


@pytest.mark.parametrize(("fields", "of_vm", "of_vmi"), NOT_RESTARTED.values(), ids=NOT_RESTARTED)
def test_p13_a_vmi_is_not_restarted(fields, of_vm, of_vmi):
    owner = updated_pool(replicas=1, **fields)
    [machine] = new_vms(owner, 0, **of_vm)
    todo = plan(during_update(owner, [machine], vmis=[vmi(machine, **{"revision": "web-1", **of_vmi})]))
    assert todo.actions == ()
    assert (todo.notices, todo.requeue_after_s) == ((), None) or "deleting" in of_vmi


@pytest.mark.parametrize(
    ("own", "inner", "of_vmi", "generation"),
    [
        *((own, "web-2", "web-2", 3) for own in (None, "bogus")),
        *(("web-2", inner, inner, 3) for inner in (None, "bogus")),
        *(("web-2", "web-2", of_vmi, generation) for of_vmi in (None, "bogus", "web-2") for generation in (3, 2)),
    ],
)
def test_p4_p13_a_label_that_others_have_changed_restarts_no_vmi_that_runs_the_spec(own, inner, of_vmi, generation):
    """The generation of the VM is 3."""
    owner = updated_pool(replicas=1)
    spec = vm_spec(image="v2", labels={**LABELS, **({names.REVISION_NAME: inner} if inner is not None else {})})
    [machine] = vms(owner, 0, revision=own, spec=spec)
    machine = replace(machine, metadata=replace(machine.metadata, generation=3))
    running = vmi(machine, revision=of_vmi, annotations={names.VM_GENERATION: str(generation)})
    seen = during_update(owner, [machine], vmis=[running])
    todo, is_updated = plan(seen), generation == 3 or of_vmi == "web-2"
    assert restarted(todo) == ([] if is_updated else ["web-0"])
    assert next_status(seen, ()).updated_replicas == int(is_updated)
    assert len(merged(todo)) == (own != "web-2"), "its own label is written again"


def created(todo):
    """The revision and the image of each VM that is created, by its name."""
    found = {}
    for each in [each for each in todo.actions if isinstance(each, Create)]:
        body = json.loads(each.body)
        root, *_ = body["spec"]["template"]["spec"]["volumes"]
        found[each.key.name] = (body["metadata"]["labels"][names.REVISION_NAME], root["containerDisk"]["image"])
    return found


def test_p14_a_vm_that_is_created_below_the_partition_gets_the_revision_of_the_status():
    owner = updated_pool(replicas=3, annotations={names.PARTITION: "2"}, status={"currentRevision": "web-1"})
    expected = {"web-0": ("web-1", "v1"), "web-1": ("web-1", "v1"), "web-2": ("web-2", "v2")}
    assert created(plan(during_update(owner, ()))) == expected


@pytest.mark.parametrize(
    "mark", [{names.STANDBY_STATE: "preparing"}, {names.CLAIMED_BY: "job"}, {}], ids=["standby", "claimed", "updated"]
)
def test_p14_only_vms_that_are_not_updated_tell_the_revision_below_the_partition(mark):
    owner = updated_pool(replicas=2 if mark else 3, annotations={names.PARTITION: "75%:60s,0", names.STANDBY: "1"})
    unknown = vms(owner, 1, 2, revision="of-a-backup")
    patches = plan(during_update(owner, (*new_vms(owner, 0, annotations=mark), *unknown))).actions
    assert not any(names.PARTITION_REVISION in each.body.decode() for each in patches if isinstance(each, Patch))


def test_p14_if_no_vm_is_left_below_the_partition_a_new_vm_gets_the_noted_revision():
    owner = updated_pool(replicas=3, annotations={names.PARTITION: "1"})
    machines = (*vms(owner, 0), *new_vms(owner, 1, 2))
    [note] = plan(during_update(owner, machines)).actions
    assert isinstance(note, Patch)
    noted = json.loads(note.body)["metadata"]["annotations"]
    assert noted == {names.PARTITION_REVISION: "web-1"}

    owner = updated_pool(replicas=3, annotations={names.PARTITION: "1", **noted})
    assert created(plan(during_update(owner, new_vms(owner, 1, 2)))) == {"web-0": ("web-1", "v1")}
    assert plan(during_update(owner, machines)).actions == ()


def test_p14_without_a_partition_no_revision_is_kept_for_a_later_one():
    notes = {names.PARTITION_REVISION: "web-1", names.PARTITION_STEP: "an update of before"}
    owner = updated_pool(replicas=3, annotations=notes)
    [note] = plan(during_update(owner, new_vms(owner, 0, 1, 2))).actions
    assert json.loads(note.body)["metadata"]["annotations"] == dict.fromkeys(notes)


@pytest.mark.parametrize("mark", [{names.CLAIMED_BY: "job"}, {names.STANDBY_STATE: "resting"}])
def test_p14_a_new_vm_of_a_step_gets_the_earlier_revision_although_others_have_the_low_ordinals(mark):
    notes = {names.PARTITION: "50%:60s,0", names.STANDBY: "1"}
    owner = updated_pool(replicas=3, annotations=notes, status={"currentRevision": "web-1"})
    beside = vms(owner, 2, annotations=mark, revision="web-1", spec=vm_spec(run_strategy="Halted"))
    machines = (*vms(owner, 0), *new_vms(owner, 1), *beside)
    assert created(plan(during_update(owner, machines)))["web-3"] == ("web-1", "v1")


@pytest.mark.parametrize(
    ("most", "allowed"), [(1, 1), (3, 3), (9, 4), ("25%", 1), ("74%", 2), ("1%", 1), ("100%", 4), (None, 4)]
)
def test_p14_at_most_max_unavailable_are_restarted_at_once(most, allowed):
    owner = limited_pool(most, replicas=4)
    machines = new_vms(owner, *range(4))
    todo = plan(during_update(owner, machines, vmis=old_vmis(machines)))
    assert restarted(todo) == [f"web-{n}" for n in range(allowed)]


def plan_beside(of_vm, of_vmi, *, most=1, **fields):
    """The plan for four VMs that must restart, but web-0 has these circumstances. With None, it has no VMI."""
    owner = limited_pool(most, **fields)
    [first], others = new_vms(owner, 0, **of_vm), new_vms(owner, 1, 2, 3)
    running = [] if of_vmi is None else [vmi(first, **of_vmi)]
    return plan(during_update(owner, (first, *others), vmis=[*running, *old_vmis(others)]))


STOPPED = {"strategy": "Halted", "ready": False, "printable": "Stopped"}
LEAVING = {"deleting": True, "finalizers": ("x",)}
MIN_READY_60 = {"annotations": {names.MIN_READY: "60"}}

BESIDE = {
    # name: (fields of the VM, fields of its VMI, fields of the pool, restarted VMs, seconds to the next reconciliation)
    # A VM is noted after 30 s if its objects do not show since when it is not ready. The progress deadline is 600 s.
    "a VM that is not ready takes a turn": ({}, {"ready": False}, {"most": 2}, ["web-1"], None),
    "a VM without a VMI takes a turn": ({}, None, {}, [], None),
    "a VM with a terminating VMI takes a turn": ({}, {"revision": "web-1", "deleting": True}, {}, [], 30),
    "a terminating VM with a ready VMI takes a turn": (LEAVING, {}, {}, [], 59),
    "a VM that its user stopped takes no turn": (STOPPED, None, {}, ["web-1"], None),
    "a VM takes a turn before minReadySeconds": ({}, {"ready_for_s": 20}, MIN_READY_60, [], 40),
    "a VM takes no turn after minReadySeconds": ({}, {"ready_for_s": 60}, MIN_READY_60, ["web-1"], None),
}


@pytest.mark.parametrize(("of_vm", "of_vmi", "fields", "expected", "next_s"), BESIDE.values(), ids=BESIDE)
def test_p14_unavailable_vms_take_a_turn(of_vm, of_vmi, fields, expected, next_s):
    todo = plan_beside(of_vm, of_vmi, **fields)
    assert restarted(todo) == expected
    assert "wait" in todo.held
    assert todo.requeue_after_s == (None if next_s is None else pytest.approx(next_s))


@pytest.mark.parametrize(("partition", "expected"), [("3", ["web-3"]), ("half", [])])
def test_p14_ordinals_below_the_partition_are_not_restarted_and_an_invalid_partition_stops_the_rollout(
    partition, expected
):
    todo = plan_beside({}, {"revision": "web-1"}, most=4, annotations={names.PARTITION: partition})
    assert restarted(todo) == expected
    assert expected or todo.actions == ()
    assert [notice.reason for notice in todo.notices] == ([] if expected else ["InvalidAnnotation"])


def test_p14_vmis_that_are_not_ready_come_first_and_do_not_count_towards_the_limit():
    owner = limited_pool()
    machines = new_vms(owner, 0, 1, 2, 3)
    vmis = [*old_vmis(machines[:3]), *old_vmis(machines[3:], ready=False)]
    assert restarted(plan(during_update(owner, machines, vmis=vmis))) == ["web-3"]
    owner = limited_pool(2)
    assert restarted(plan(during_update(owner, machines, vmis=vmis))) == ["web-3", "web-0"]


def test_p14_a_vm_that_the_same_pass_heals_counts_towards_the_limit():
    owner = limited_pool(autohealing={"startUpFailureThreshold": 1})
    failing = new_vms(owner, 0, ready=False, failures=1)
    machines = new_vms(owner, 1, 2, 3)
    running = [vmi(failing[0], ready=False), *old_vmis(machines)]
    assert restarted(plan(during_update(owner, (*failing, *machines), vmis=running))) == []
    todo = plan(during_update(announced_for(owner, *failing), (*failing, *machines), vmis=running))
    assert [each.key.name for each in todo.actions if isinstance(each, Delete) and each.resource is VMS] == ["web-0"]
    assert restarted(todo) == []


def test_p14_a_stalled_rollout_gives_one_event_at_its_deadline():
    owner = limited_pool(annotations={names.PROGRESS_DEADLINE: "120"})
    machines = new_vms(owner, 0, 1, 2, 3)

    def after(seconds):
        running = [vmi(machines[0], ready=False, ready_for_s=seconds), *old_vmis(machines[1:])]
        return plan(during_update(noted(owner, machines[0], seconds), machines, vmis=running))

    assert after(50).notices == ()
    assert after(50).requeue_after_s == pytest.approx(10), "then the status names the VM"
    assert after(70).requeue_after_s == pytest.approx(50)
    [notice] = after(121).notices
    assert notice.reason == "RolloutStalled"
    assert "web-0" in notice.message
    assert notice.once == after(500).notices[0].once != ""
    assert restarted(after(121)) == []


def test_p14_a_ready_time_in_the_future_counts_as_now():
    owner = limited_pool(annotations={names.MIN_READY: "60"})
    machines = new_vms(owner, 0)
    ahead = during_update(owner, machines, vmis=[vmi(machines[0], ready=True, ready_for_s=-3600)])
    far = during_update(owner, machines, vmis=[vmi(machines[0])], now=datetime(9998, 1, 1, tzinfo=NOW.tzinfo))
    assert outage_of(ahead.members, ahead.now, 60).ends_at == NOW + timedelta(seconds=60)
    assert outage_of(far.members, far.now, 60).number == 0


def stepped(text: str = "75%,50%:10m,0", replicas: int = 4, **more: Any) -> Any:
    annotations = {names.PARTITION: text, names.PARTITION_REVISION: "web-1", **more}
    return limited_pool(replicas, replicas=replicas, annotations=annotations)


@pytest.mark.parametrize(
    ("text", "ordinals", "partitions"),
    [
        ("3", range(9), [3]),
        ("half", range(9), [ALL_ORDINALS]),
        ("90%,50%:10m,0", range(10), [9, 5, 0]),
        ("90%", range(3), [2]),
        ("100%,99%,0%", range(3), [ALL_ORDINALS, 2, 0]),
        ("50%", [0, 3, 7, 9], [4]),
        ("90%", [5], [0]),
        ("90%", [], [0]),
    ],
)
def test_p14_a_percentage_keeps_the_vms_with_the_lowest_ordinals_but_not_all(
    text: str, ordinals: Any, partitions: list[int]
):
    steps = parse_partition(pool(annotations={names.PARTITION: text}).metadata)
    assert [each.partition_of(list(ordinals), list(ordinals)) for each in steps] == partitions


def seen_in(owner: Any, updated: range, *, ready_for_s: int = 1800, ready: bool = True) -> Any:
    """The pool with the VMs of `updated` on the new template."""
    old = old_vms(owner, *(each for each in range(4) if each not in updated))
    new = new_vms(owner, *updated, ready_for_s=ready_for_s, ready=ready)
    running = [*map(vmi, old), *(vmi(each, ready_for_s=ready_for_s, ready=ready) for each in new)]
    return during_update(owner, (*old, *new), vmis=running)


def step_of(owner: Any, step: int, since_s: float | None = None) -> dict[str, str]:
    since = NOW - timedelta(seconds=since_s) if since_s is not None else None
    return {names.PARTITION_STEP: step_note(owner.metadata, intent_of(owner).template.digest, step, since)}


def test_p14_the_next_step_is_noted_when_the_vms_of_the_step_are_ready_and_begins_after_that():
    assert merged(plan(seen_in(stepped(), range(3, 4), ready=False))) == []
    todo = plan(seen_in(stepped(**step_of(stepped(), 1)), range(3, 4)))
    assert merged(todo) == []
    [notice] = todo.notices
    assert (notice.reason, notice.message) == ("RolloutStep", "step 2 of 3 of the update begins")
    [note] = todo.actions
    assert step_of(stepped(), 2)[names.PARTITION_STEP].encode() in note.body
    assert merged(plan(seen_in(stepped(**step_of(stepped(), 2)), range(3, 4)))) == ["web-2"]


@pytest.mark.parametrize(
    ("text", "updated", "says"),
    [
        ("50%:10m,0", (), "step 1 of 2 updates the ordinals from 7 on;"),
        ("50%:10m,0", (3, 7), "step 1 of 2 updates 2 of 4 VMs;"),
        ("50%:10m,0", (3, 7, 9), "step 1 of 2 updates the ordinals from 3 on;"),
        ("100%:10m,0", (), "step 1 of 2 updates no VM;"),
    ],
)
def test_p14_the_text_of_a_step_names_ordinals_that_exist(text: str, updated: tuple[int, ...], says: str):
    owner = stepped(text)
    old, new = old_vms(owner, *({0, 3, 7, 9} - {*updated})), new_vms(owner, *updated)
    assert says in plan(during_update(owner, (*old, *new), vmis=[*old_vmis(old), *map(vmi, new)])).held


def test_p14_a_pause_ends_when_all_vms_of_the_step_have_been_ready_for_its_time():
    owner = stepped(**step_of(stepped(), 2, since_s=600))
    todo = plan(seen_in(owner, range(2, 4), ready_for_s=500))
    assert (todo.actions, todo.requeue_after_s) == ((), 100)
    assert "step 2 of 3 updates the ordinals from 2 on; the next step begins when they have been ready for 600 s" in (
        todo.held
    )
    assert "kubectl vmherd rollout resume" in todo.held
    assert [each.reason for each in plan(seen_in(owner, range(2, 4), ready_for_s=600)).notices] == ["RolloutStep"]


def test_p14_vms_that_a_scale_out_makes_during_the_first_pause_of_the_only_vm_get_the_earlier_revision():
    text = {names.PARTITION: "75%:60s,0"}
    owner = updated_pool(replicas=1, annotations=text)
    [note, *_] = plan(during_update(owner, vms(owner, 0))).actions
    assert isinstance(note, Patch)
    noted = json.loads(note.body)["metadata"]["annotations"]
    assert noted[names.PARTITION_REVISION] == "web-1"
    owner = updated_pool(replicas=4, annotations={**text, **noted})
    todo = plan(during_update(owner, new_vms(owner, 0)))
    assert created(todo) == dict.fromkeys(("web-1", "web-2", "web-3"), ("web-1", "v1"))


@pytest.mark.parametrize("old", [range(1, 4), range(0)], ids=["after a scale-out", "no VM is outdated"])
@pytest.mark.parametrize("ready", [True, False])
def test_p14_a_step_ends_when_the_vms_with_the_template_are_ready_and_not_only_those_above_the_partition(old, ready):
    owner = stepped("75%:60s,0", **step_of(stepped("75%:60s,0"), 1, since_s=600))
    owner = updated_pool(replicas=len(old) + 1, annotations=owner.metadata.annotations)
    machines = (*new_vms(owner, 0, ready=ready, ready_for_s=1800), *old_vms(owner, *old))
    seen = [vmi(each, **({"ready": False} if each.metadata.name == "web-0" and not ready else {})) for each in machines]
    notices = plan(during_update(owner, machines, vmis=seen)).notices
    assert [each.reason for each in notices] == (["RolloutStep"] if ready else [])
