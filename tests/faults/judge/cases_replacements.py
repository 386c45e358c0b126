"""Cases of the invariants about the leave to write and to delete: S8, S13 and S14."""

from typing import Any, Final

from tests.faults.judge.cases_members import SHARED, pool_with_disk
from tests.faults.judge.judge import Interval, LeaseTimes, Run
from tests.faults.judge.made_history import replica_set
from tests.faults.judge.states import BUSY_UNTIL, DRAIN_SECONDS, DRAINED, DRAINING, FAR, PROTECT, VM, VMI, Object
from tests.faults.judge.steps import (
    KEPT,
    SNAPSHOT,
    Case,
    Cases,
    a_pool,
    a_set,
    broken,
    case,
    kept,
    lease,
    new_template,
    scale,
    simulator,
    user,
    vmi_of,
    wait,
    we,
)

ONE_LEASE: Final = Run(lease=LeaseTimes())
S8: Cases = {
    "the holder of the lease writes": case(
        user.create(replica_set(2)),
        lease("one", "1"),
        we.member("herd-a", credential="1"),
        wait(20),
        lease("two", "2"),
        we.member("herd-b", credential="2"),
        kept(ONE_LEASE),
    ),
    "a write after the end of the lease": case(
        user.create(replica_set(2)),
        lease("one", "1"),
        wait(20),
        we.member("herd-a", credential="1"),
        broken("the lease is that of 'one'", ONE_LEASE),
    ),
    "a write of a controller that lost the lease": case(
        user.create(replica_set(2)),
        lease("one", "1"),
        wait(20),
        lease("two", "2"),
        we.member("herd-a", credential="1"),
        broken("is sent by one", ONE_LEASE),
    ),
}


def recreated(answer: dict[str, Any] | None, problem: str) -> Case:
    """The pool recreates a VM for new disks. Before the delete, the create of the successor has this answer."""
    more = {key: value for key, value in (answer or {}).items() if key != "code"}
    tried = (we.fail("create", VM, "pool-0", answer["code"], dry_run=True, answer=more),) if answer else ()
    expected = (
        (broken(problem),)
        if problem
        else (KEPT, broken("all creates are refused", lambda made: Run(refused=(Interval(0.0, made.now),))))
    )
    return (pool_with_disk(), new_template(SHARED), wait(60), *tried, we.delete(VM, "pool-0"), *expected)


QUOTA: Final = "exceeded quota: q, requested: count/vms=1, used: count/vms={}, limited: count/vms=2"
S13: Cases = {
    "the name of the successor exists": recreated({"code": 409, "reason": "AlreadyExists"}, ""),
    "the successor was accepted": recreated({"code": 201}, ""),
    "the delete makes room in the quota": recreated({"code": 403, "message": QUOTA.format(2)}, ""),
    "the quota has no room": recreated({"code": 403, "message": QUOTA.format(3)}, "its successor was refused"),
    "a policy denies the successor": recreated(
        {"code": 422, "message": "denied by a policy"}, "its successor was refused: denied by a policy"
    ),
    "the server failed": recreated({"code": 500}, "its successor was refused"),
    "the successor was not tried": recreated(None, "its successor was not tried"),
    "the successor was tried long ago": case(
        pool_with_disk(),
        we.fail("create", VM, "pool-0", 409, dry_run=True, answer={"reason": "AlreadyExists"}),
        new_template(SHARED),
        wait(60),
        we.delete(VM, "pool-0"),
        broken("was not tried"),
    ),
}


def protecting(value: str) -> Object:
    return {"metadata": {"annotations": {PROTECT: value}}}


KEEPING: Final[tuple[tuple[str, Object], ...]] = (
    *((VM, protecting(value)) for value in ("true", "True", "")),
    (VM, SNAPSHOT),
    (VM, {"status": {"printableStatus": "Paused"}}),
    (VM, {"status": {"conditions": [{"type": "ManualRecoveryRequired", "status": "True"}]}}),
    (VMI, protecting("yes")),
    *((kind, {"metadata": {"annotations": {BUSY_UNTIL: FAR}}}) for kind in (VM, VMI)),
)
"""Changes after which no VM or VMI may be deleted."""

DRAINS: Final = {DRAIN_SECONDS: "900"}
RUNS: Final = {"status": {"phase": "Running"}}

S14: Cases = {
    **{
        f"{kind} {change}": case(
            a_pool(2) if kind == VM else a_set(2),
            scale(1),
            simulator.patch(kind, name, change),
            we.delete(kind, name),
            broken(f"{name} is deleted, but is "),
        )
        for kind, change in KEEPING
        for name in ("pool-0" if kind == VM else "herd-a",)
    },
    "a VM that runs and has not drained": case(
        a_pool(1, annotations=DRAINS),
        vmi_of("pool-0"),
        simulator.patch(VMI, "pool-0", RUNS),
        we.patch(VM, "pool-0", {"metadata": {"annotations": {DRAINING: "scale-in"}}}),
        we.delete(VM, "pool-0"),
        broken("has not drained"),
    ),
    "VMIs that have drained or do not run": case(
        a_set(2, annotations=DRAINS),
        simulator.patch(VMI, "herd-a", {"status": {"phase": "Scheduled"}}),
        we.delete(VMI, "herd-a"),
        user.patch(VMI, "herd-b", {"metadata": {"annotations": {DRAINING: "scale-in", DRAINED: "true"}}}),
        we.delete(VMI, "herd-b"),
        KEPT,
    ),
    "a value that does not protect, and another moment": case(
        a_pool(2),
        scale(1),
        simulator.patch(VM, "pool-0", SNAPSHOT),
        simulator.patch(VM, "pool-0", {"status": {"snapshotInProgress": None}}),
        user.patch(VM, "pool-0", protecting("false")),
        we.delete(VM, "pool-0"),
        KEPT,
    ),
}
