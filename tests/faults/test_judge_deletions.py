"""S1 about disks, S13 and S14: for each invariant, histories that keep it and histories that break it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.checks import assert_broken, assert_kept, pool_of, scale, set_of
from tests.faults.judge import Interval, Run
from tests.faults.made_history import OURS, SIMULATOR, Made
from tests.faults.states import MOST_DISRUPTIVE, POOL, PROTECT, VM, VMI, Object

KEEP = {"scaleInStrategy": {"proactive": {"statePreservation": "Offline"}}}


def template(size: str = "1Gi", mode: str = "ReadWriteOnce") -> Object:
    claim = {"accessModes": [mode], "resources": {"requests": {"storage": size}}}
    return {"spec": {"dataVolumeTemplates": [{"metadata": {"name": "d"}, "spec": {"pvc": claim}}]}}


def pool_with_disk(made: Made, **more: Any) -> Object:
    owner = pool_of(made, 1, virtualMachineTemplate=template(), **more)
    made.wait(60)
    return owner


def updated(made: Made, wanted: Object) -> None:
    made.patch(POOL, "pool", {"spec": {"virtualMachineTemplate": wanted}})
    made.wait(60)


def tried(made: Made, code: int = 409, **answer: Any) -> None:
    made.fail("create", VM, "pool-0", code, dry_run=True, answer=answer)


NEW, LARGER, SMALLER = template(mode="ReadWriteMany"), template("2Gi"), template("512Mi")


@pytest.mark.parametrize(
    ("wanted", "leave", "spec", "is_right"),
    [
        (NEW, None, {}, True),
        (NEW, "restart", {}, False),
        (NEW, None, KEEP, False),
        (NEW, "recreate", KEEP, True),
        (LARGER, None, {}, False),
        (LARGER, "recreate", {}, False),
        (SMALLER, None, {}, False),
        (SMALLER, "recreate", {}, True),
    ],
)
def test_s1_only_new_disks_and_leave_are_reasons_to_recreate_a_vm(
    wanted: Object, leave: str | None, spec: Any, is_right: bool
) -> None:
    made = Made()
    pool_with_disk(made, annotations={MOST_DISRUPTIVE: leave} if leave else None, **spec)
    updated(made, wanted)
    made.delete(VM, "pool-0", by=OURS)
    if is_right:
        assert_kept(made, "S1")
    else:
        assert_broken(made, "S1", "is deleted without a reason")


QUOTA = "exceeded quota: q, requested: count/vms=1, used: count/vms={}, limited: count/vms=2"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"code": 409, "reason": "AlreadyExists"}, ""),
        ({"code": 201}, ""),
        ({"code": 403, "message": QUOTA.format(2)}, ""),
        ({"code": 403, "message": QUOTA.format(3)}, "its successor was refused"),
        ({"code": 422, "message": "denied by a policy"}, "its successor was refused: denied by a policy"),
        ({"code": 500}, "its successor was refused"),
        (None, "its successor was not tried"),
    ],
)
def test_s13_a_vm_is_recreated_only_if_its_successor_was_tried_and_accepted(answer: Any, problem: str) -> None:
    made = Made()
    pool_with_disk(made)
    updated(made, NEW)
    if answer:
        tried(made, **answer)
    made.delete(VM, "pool-0", by=OURS)
    if problem:
        assert_broken(made, "S13", problem)
    else:
        assert_kept(made, "S13")
        assert_broken(made, "S13", "all creates are refused", Run(refused=(Interval(0.0, made.now),)))


def test_s13_a_successor_that_was_tried_long_ago_does_not_count() -> None:
    made = Made()
    pool_with_disk(made)
    tried(made, reason="AlreadyExists")
    updated(made, NEW)
    made.delete(VM, "pool-0", by=OURS)
    assert_broken(made, "S13", "was not tried")


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        *((VM, {"metadata": {"annotations": {PROTECT: value}}}) for value in ("true", "True", "")),
        (VM, {"status": {"snapshotInProgress": "s"}}),
        (VM, {"status": {"printableStatus": "Paused"}}),
        (VM, {"status": {"conditions": [{"type": "ManualRecoveryRequired", "status": "True"}]}}),
        (VMI, {"metadata": {"annotations": {PROTECT: "yes"}}}),
    ],
)
def test_s14_nothing_protected_or_delicate_is_deleted(kind: str, change: Object) -> None:
    made = Made()
    owner, name = (pool_of(made, 2), "pool-0") if kind == VM else (set_of(made, 2), "herd-a")
    scale(made, owner, 1)
    made.patch(kind, name, change, by=SIMULATOR)
    made.delete(kind, name, by=OURS)
    assert_broken(made, "S14", f"{name} is deleted, but is ")


def test_s14_a_value_that_does_not_protect_and_another_moment_are_right() -> None:
    made = Made()
    owner = pool_of(made, 2)
    scale(made, owner, 1)
    made.patch(VM, "pool-0", {"status": {"snapshotInProgress": "s"}}, by=SIMULATOR)
    made.patch(VM, "pool-0", {"status": {"snapshotInProgress": None}}, by=SIMULATOR)
    made.patch(VM, "pool-0", {"metadata": {"annotations": {PROTECT: "false"}}})
    made.delete(VM, "pool-0", by=OURS)
    assert_kept(made, "S14")
