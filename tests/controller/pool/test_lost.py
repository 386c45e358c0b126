"""P28: a pool makes substitutes for VMs whose node does not answer."""

import json
from datetime import timedelta
from typing import Any

import pytest

from controller.kubevirt.annotations import (
    BUSY_UNTIL,
    MAX_UNHEALTHY,
    PROTECT,
    REPLACE_UNREADY_AFTER,
    SUBSTITUTE,
    SUBSTITUTE_LOST_AFTER,
)
from controller.kubevirt.resources import VMIS, VMS
from controller.pool.plan import plan
from controller.pool.status import next_status
from controller.runtime.actions import Create, Patch
from tests.builders import NOW
from tests.pool_builders import pool, revision, snapshot, vm, vm_spec, vmi
from tests.pool_healing import reasons
from tests.pool_replay import Replay, moments
from tests.pool_updates import deleted

AFTER = {SUBSTITUTE_LOST_AFTER: "300"}
MARK = {SUBSTITUTE: "true"}
DESCENDING = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}}
SILENT: dict[str, Any] = {"ready": False, "reason": None, "ready_for_s": 400}
"""What KubeVirt shows of a VMI while its node does not answer."""

TERMINATING: dict[str, Any] = {"ready": False, "reason": "PodTerminating", "ready_for_s": 400}
"""What KubeVirt shows after Kubernetes has deleted the Pod."""


def seen(owner: Any, lost: dict[int, dict[str, Any]], *ordinals: int, **more: Any) -> Any:
    """The snapshot of a pool whose VMs `lost` are not ready."""
    marked = more.pop("marked", {})
    machines = [
        vm(f"web-{n}", owner=owner, ready=n not in lost, ready_for_s=since(lost, n), annotations=marked.get(n))
        for n in ordinals
    ]
    instances = [vmi(each, **lost.get(n, {})) for each, n in zip(machines, ordinals, strict=True)]
    return snapshot(owner, machines, vmis=instances, **more)


def since(lost: dict[int, dict[str, Any]], ordinal: int) -> float:
    """For how many seconds the VM has been ready or unready."""
    return float(lost.get(ordinal, {}).get("ready_for_s", 1800))


def created(todo: Any) -> dict[str, bool]:
    """The names of the VMs that a plan creates, and whether each is a substitute."""
    bodies = {each.key.name: json.loads(each.body)["metadata"] for each in todo.actions if isinstance(each, Create)}
    return {name: SUBSTITUTE in (meta.get("annotations") or {}) for name, meta in bodies.items()}


@pytest.mark.parametrize(
    ("sign", "wait_s"),
    [
        (SILENT, -100),
        ({**SILENT, "ready_for_s": 250}, 50),
        (TERMINATING, -100),
        ({**TERMINATING, "phase": "Scheduled"}, -100),
        ({**SILENT, "phase": "Scheduled"}, None),
        ({**SILENT, "reason": "ContainersNotReady"}, None),
        ({**SILENT, "reason": "GuestNotRunning"}, None),
        ({**TERMINATING, "phase": "Failed"}, None),
    ],
)
def test_p28_a_vm_is_lost_if_its_node_does_not_answer_and_not_if_it_is_only_unready(sign: Any, wait_s: Any):
    owner = pool(annotations=AFTER)
    for late_s, is_lost in ((-1, False), (0, True)) if wait_s is not None else ((600, False),):
        todo = plan(seen(owner, {1: sign}, 0, 1, 2, now=NOW + timedelta(seconds=(wait_s or 0) + late_s)))
        assert created(todo) == ({"web-3": True} if is_lost else {})
        assert reasons(todo) == (["VMLost"] if is_lost else [])
        assert not deleted(todo)
    late = NOW + timedelta(seconds=600)
    assert not created(plan(seen(pool(), {1: sign}, 0, 1, 2, now=late))), "without the annotation nothing changes"


def test_p28_a_guest_that_shuts_down_slowly_is_not_lost_before_its_grace_period_has_passed():
    spec = vm_spec()
    spec["template"]["spec"]["terminationGracePeriodSeconds"] = 600
    owner = pool(spec=spec, annotations=AFTER)
    machines = [vm(f"web-{n}", owner=owner, spec=spec, ready=n != 1) for n in range(3)]
    states = [vmi(each, **(TERMINATING if each.metadata.name == "web-1" else {})) for each in machines]
    for seconds, expected in ((259, {}), (260, {"web-3": True})):
        assert created(plan(snapshot(owner, machines, vmis=states, now=NOW + timedelta(seconds=seconds)))) == expected


@pytest.mark.parametrize(
    ("fields", "names", "held"),
    [
        ({"maxUnavailable": 1}, ["web-6"], "lost: 2 lost virtual machines wait for a substitute, because maxUnav"),
        ({"maxUnavailable": 2}, ["web-6", "web-7"], "lost: 1 lost virtual machine waits for a substitute"),
        ({}, ["web-6", "web-7", "web-8"], ""),
        ({"annotations": {**AFTER, MAX_UNHEALTHY: "2"}}, [], "lost: 3 virtual machines are lost at the same time"),
        ({"annotations": {SUBSTITUTE_LOST_AFTER: "0"}}, [], ""),
    ],
)
def test_p28_there_are_at_most_max_unavailable_substitutes_and_none_if_too_many_vms_are_lost(
    fields: Any, names: list[str], held: str
):
    owner = pool(**{"replicas": 6, "annotations": AFTER, **fields})
    todo = plan(seen(owner, dict.fromkeys((1, 3, 5), SILENT), *range(6)))
    assert sorted(created(todo)) == names
    assert todo.held.startswith(held)
    assert ("SubstitutesHeld" in reasons(todo)) is ("at the same time" in held)


@pytest.mark.parametrize(
    ("lost", "fields", "marked", "leave", "held"),
    [
        ({1: SILENT}, {}, {3: MARK}, [], ""),
        ({1: {**TERMINATING, "ready_for_s": 1}}, {}, {3: MARK}, [], ""),
        ({}, {}, {3: MARK}, ["web-3"], ""),
        ({}, {}, {2: MARK}, ["web-2"], ""),
        (
            {1: {**SILENT, "phase": "Scheduling", "reason": "GuestNotRunning"}},
            {},
            {3: MARK},
            [],
            "1 substitute virtual",
        ),
        ({}, {}, {3: {**MARK, PROTECT: "true"}}, [], "1 surplus virtual machine may not be deleted"),
        ({}, {}, {3: {**MARK, BUSY_UNTIL: "2999-01-01T00:00:00Z"}}, [], "1 surplus virtual machine is not deleted"),
        ({1: SILENT}, {"replicas": 2}, {3: MARK}, ["web-3"], ""),
        ({1: SILENT}, {"replicas": 1}, {0: MARK}, ["web-0", "web-3"], ""),
        ({1: SILENT}, {"replicas": 0}, {3: MARK}, ["web-0", "web-2", "web-3"], ""),
        ({1: SILENT, 2: SILENT}, {"replicas": 1}, {3: MARK}, ["web-3"], "lost: 2 virtual machines are lost at"),
    ],
)
def test_p28_the_substitute_leaves_first_and_a_lost_vm_never(
    lost: Any, fields: Any, marked: Any, leave: list[str], held: str
):
    owner = pool(**{"annotations": AFTER, "scaleInStrategy": DESCENDING, **fields})
    todo = plan(seen(owner, lost, 0, 1, 2, 3, marked=marked))
    assert sorted(deleted(todo)) == leave
    assert held in todo.held
    assert not created(todo)


@pytest.mark.parametrize(
    ("lost", "ordinals", "unmarked"),
    [
        ({}, (0, 2, 3), ["web-3"]),
        ({1: SILENT}, (0, 1, 2, 3), []),
        ({1: TERMINATING}, (1, 2, 3), []),
        ({}, range(4), []),
    ],
)
def test_p28_a_substitute_that_stays_for_good_loses_its_mark(lost: Any, ordinals: Any, unmarked: list[str]):
    todo = plan(seen(pool(annotations=AFTER), lost, *ordinals, marked={3: MARK}))
    assert [each.key.name for each in todo.actions if isinstance(each, Patch) and each.resource is VMS] == unmarked


def test_p28_healing_and_updates_leave_a_lost_vm_alone():
    owner = pool(
        annotations={**AFTER, REPLACE_UNREADY_AFTER: "60"}, spec=vm_spec(image="v2"), generation=2, maxUnavailable=1
    )
    old = revision(pool(), number=1)
    machines = [
        vm(f"web-{n}", owner=owner, ready=n != 1, spec=vm_spec(), annotations=MARK if n == 3 else None)
        for n in range(4)
    ]
    states = [vmi(each, **(SILENT if each.metadata.name == "web-1" else {})) for each in machines]
    todo = plan(snapshot(owner, machines, vmis=states, revisions=[old, revision(owner, number=2)]))
    changed = {each.key.name for each in todo.actions if each.resource in (VMS, VMIS)}
    assert len(changed) == 1, "the substitute is there, so one other VM may be unavailable"
    assert changed.isdisjoint({"web-1"})
    assert "web-1 waits: its node does not answer" in todo.held


@pytest.mark.parametrize(
    ("ordinals", "word", "stalled"), [((0, 1, 2), "Scaling", False), ((0, 1, 2, 3), "Running", False)]
)
def test_p28_a_pool_whose_lost_vms_have_substitutes_is_as_its_spec_asks_and_names_them(
    ordinals: tuple[int, ...], word: str, stalled: bool
):
    owner = pool(annotations=AFTER)
    sign = {**SILENT, "ready_for_s": 4000 if len(ordinals) == 4 else 400}
    status = next_status(seen(owner, {1: sign}, *ordinals, marked={3: MARK}), ())
    assert (status.printable_status, status.problem) == (word, "web-1: NodeLost, its node node-1 does not answer")
    assert (status.replicas, status.ready_replicas) == (len(ordinals), len(ordinals) - 1)
    assert any(each.type == "Stalled" for each in status.conditions or ()) is stalled


def test_p28_a_vm_on_a_lost_node_of_a_real_cluster_gets_one_substitute_and_is_left_alone():
    replay = Replay(pool(replicas=1, annotations={SUBSTITUTE_LOST_AFTER: "25"}))
    lost_s = []
    for moment in moments("vm-node-lost", replay.owner):
        todo = replay.run_pass(moment)
        assert not deleted(todo)
        lost_s += [moment.seconds] if created(todo) == {"web-1": True} else []
    stopped_s, fenced_s = 5.399, 76.179
    assert stopped_s + 10 + 24 < lost_s[0] < stopped_s + 10 + 27, "after the grace period of the node monitor"
    assert fenced_s < lost_s[-1] < fenced_s + 3, "until the Pod is gone, also while it is Terminating"
