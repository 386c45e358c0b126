"""Cases of the invariants about the history itself, liveness and load: H0, L1 to L6, Q1 to Q3 and Q5."""

from collections.abc import Callable
from typing import Any, Final

from tests.faults.judge.judge import Answer, Interval, LeaseTimes, Run
from tests.faults.judge.made_history import START, Made, ready, replica_set
from tests.faults.judge.states import POOL, PROTECT, SET, VM, VMI
from tests.faults.judge.steps import (
    FAILED,
    KEPT,
    UNCHECKED,
    Cases,
    Step,
    a_pool,
    a_set,
    at_rest,
    broken,
    case,
    kept,
    lease,
    reported_set,
    scale,
    simulator,
    steps,
    user,
    wait,
    we,
)


def unseen(index: int) -> Step:
    """The observer misses this state."""
    return lambda made: made.observations.pop(index)


H0: Cases = {
    "a complete history": (a_set(2), user.delete(VMI, "herd-a"), KEPT),
    "a state that the observer missed": (a_set(2), unseen(2), broken("did not see the effect")),
    "a removal that the observer missed": case(
        a_set(1), user.delete(VMI, "herd-a"), unseen(-1), broken("did not see the removal")
    ),
    "an audit log without answers": (user.create(replica_set(0), answer=None), broken("needs RequestResponse")),
}
L1: Cases = {
    "a set with the wanted members": (reported_set(2), kept(at_rest)),
    **{
        f"a set that wants {replicas} members": case(
            reported_set(2), scale(replicas), broken(f"has 2 members, {replicas} are wanted", at_rest)
        )
        for replicas in (1, 3)
    },
    **{
        f"the condition {condition} excuses missing members": case(
            reported_set(2),
            scale(3),
            we.report(SET, "herd", conditions=[{"type": condition, "status": "True"}]),
            kept(at_rest),
        )
        for condition in ("ReplicaBackOff", "ReplicaFailure")
    },
    "a pause and a protection excuse a surplus": case(
        reported_set(2),
        scale(1),
        user.patch(VMI, "herd-a", {"metadata": {"annotations": {PROTECT: "true"}}}),
        a_pool(1),
        user.patch(POOL, "pool", {"spec": {"replicas": 0, "paused": True}}),
        kept(at_rest),
    ),
    "an opportunistic pool may have a surplus, but no missing member": case(
        a_pool(2, scaleInStrategy={"opportunistic": {}}),
        scale(1),
        kept(at_rest),
        scale(3),
        broken("has 2 members, 3 are wanted", at_rest),
    ),
    "without the wait for rest": (reported_set(2), scale(3), UNCHECKED),
}
WRONG: Final[tuple[tuple[dict[str, Any], str], ...]] = (
    ({"replicas": 3}, "replicas is 3, counted 2"),
    ({"readyReplicas": 1}, "readyReplicas is 1, counted 2"),
    ({"observedGeneration": 7}, "observedGeneration is 7"),
    ({"labelSelector": "app=other"}, "labelSelector is app=other"),
    ({"conditions": [{"type": "ReplicaPaused", "status": "True"}]}, "ReplicaPaused does not fit"),
)


def condition_since(time: str) -> Step:
    return we.report(SET, "herd", conditions=[{"type": "X", "status": "True", "lastTransitionTime": time}])


L2: Cases = {
    "a status that equals the recount": (reported_set(2), condition_since("1"), kept(at_rest)),
    **{text: (reported_set(2), we.report(SET, "herd", **status), broken(text, at_rest)) for status, text in WRONG},
    "the time of a condition that stays true": case(
        reported_set(1), condition_since("1"), condition_since("2"), broken("the time of the conditions ['X']")
    ),
    "without the wait for rest": (reported_set(2), we.report(SET, "herd", replicas=3), KEPT),
}


def ended(made: Made) -> Run:
    return Run(ended=made.now)


def fault_until(before_s: float, *, ends: float = 0.0) -> Callable[[Made], Run]:
    """A fault that began 100 seconds and ended `before_s` seconds ago. The run goes on for `ends` seconds."""
    return lambda made: Run(faults=(Interval(made.now - before_s - 100, made.now - before_s),), ended=made.now + ends)


L3: Cases = {
    "a lost member that is replaced soon": case(
        reported_set(2), user.delete(VMI, "herd-a"), wait(3), we.member("herd-c"), wait(100), kept(ended)
    ),
    "a lost member is not replaced": case(
        reported_set(2), user.delete(VMI, "herd-a"), wait(100), broken("is not as wanted for 100.0 s", ended)
    ),
    "a wrong status is not corrected": case(
        reported_set(2), scale(1), we.delete(VMI, "herd-a"), wait(100), broken("is not as wanted", ended)
    ),
    "the time of a fault does not count": case(
        reported_set(2),
        user.delete(VMI, "herd-a"),
        wait(103),
        we.member("herd-c"),
        kept(fault_until(3)),
        broken("is not as wanted", ended),
    ),
}


def crash_loop(pause_s: float) -> Step:
    """Thirty VMIs fail, one after the other."""
    names = [f"herd-{index}" for index in range(30)]
    failing = [step for name in names for step in (we.member(name), simulator.patch(VMI, name, FAILED), wait(pause_s))]
    return steps(user.create(replica_set(1)), *failing)


DELETED_BY_OTHERS: Final = [
    step
    for name in (f"herd-{index}" for index in range(30))
    for step in (we.member(name), simulator.patch(VMI, name, ready()), user.delete(VMI, name))
]
L4: Cases = {
    "a crash loop with a back-off": (crash_loop(10), KEPT),
    "a crash loop without a back-off": (crash_loop(0.1), broken("VMIs in a minute")),
    "members that others delete": (user.create(replica_set(1)), *DELETED_BY_OTHERS, KEPT),
}
L5: Cases = {
    "an owner is repaired after a fault": case(
        reported_set(2), user.delete(VMI, "herd-a"), wait(2), we.member("herd-c"), kept(fault_until(2, ends=100))
    ),
    "an owner that was created long after a fault": (wait(500), reported_set(2), kept(fault_until(300))),
    "an owner that stays broken after a fault": case(
        reported_set(2),
        user.delete(VMI, "herd-a"),
        broken("is not repaired 30 s after a fault", fault_until(0, ends=100)),
    ),
}
ONE_LEASE: Final = Run(lease=LeaseTimes())
LEASES: Final = (
    ("a released lease gets a new holder", True, 3, kept(ONE_LEASE)),
    ("a lost lease gets a new holder", False, 17, kept(ONE_LEASE)),
    ("a released lease without a holder", True, 10, broken("two acquires the lease", ONE_LEASE)),
    ("a lost lease without a holder", False, 30, broken("two acquires the lease", ONE_LEASE)),
)
L6: Cases = {
    name: (lease("one", "1"), *((lease("", "1"),) if released else ()), wait(pause_s), lease("two", "2"), expected)
    for name, released, pause_s, expected in LEASES
}
PATH: Final = "/apis/kubevirt.io/v1/namespaces/n/virtualmachineinstances"


def at_rest_for(requests: int) -> Callable[[Made], Run]:
    """The controller was at rest before its last requests."""
    return lambda made: Run(settled_from=made.requests[-requests].time)


def read(kind: str, name: str = "", verb: str = "get") -> Step:
    return lambda made: made.read(kind, name, verb=verb)


Q1: Cases = {
    "at rest watches and the lease are allowed": case(
        a_set(1), read(VMI, verb="watch"), lease("one", "1"), kept(at_rest_for(2))
    ),
    "a request at rest": case(
        a_set(1),
        read(SET, "herd"),
        broken("1 requests at rest, the first is get virtualmachineinstancereplicasets/herd -> 200", at_rest_for(1)),
    ),
    "a resource that is listed again and again": case(
        steps(*[read(VMI, verb="list"), wait(1)] * 10),
        broken("10 requests to list virtualmachineinstances in a minute", at_rest_for(10)),
    ),
    "a status write that changes nothing": case(
        a_set(1), we.report(SET, "herd", replicas=1), we.report(SET, "herd", replicas=1), broken("changes nothing")
    ),
    "a patch that only tests": (a_pool(1), we.guarded_patch(VM, "pool-0", {}), KEPT),
}


def fail_often(pause_s: float) -> Step:
    return steps(*[we.fail("create", VMI, "herd-a", 403), wait(pause_s)] * 40)


REFUSED: Final = tuple(Answer(START + index * 0.01, "PATCH", f"{PATH}/herd-a", 500) for index in range(40))
Q2: Cases = {
    "failures with a back-off": (fail_often(1), KEPT),
    "a hot loop": (fail_often(0.01), broken("fails 40 times in 10 s")),
    "a hot loop that the proxy refuses": (broken("fails 40 times in 10 s", Run(answers=REFUSED)),),
    "many objects that fail often": case(
        *(we.fail("create", VMI, f"herd-{index}", 403) for index in range(400)), broken("failed requests")
    ),
}


def refused_delete(made: Made) -> None:
    uid = {"preconditions": {"uid": made.get(VMI, "herd-a")["metadata"]["uid"]}}
    made.fail("delete", VMI, "herd-a", 409, body=uid)


Q3: Cases = {
    "a member costs a create and a delete": (a_set(2), scale(1), we.delete(VMI, "herd-a"), KEPT),
    "a second delete of a member": case(
        a_pool(2), we.delete(VM, "pool-1"), we.delete(VM, "pool-1"), broken("2 requests to delete, allowed are 1")
    ),
    "a delete that lost a race is sent again": case(a_set(2), scale(1), refused_delete, we.delete(VMI, "herd-a"), KEPT),
    "a second attempt after a lost answer": case(
        user.create(replica_set(1)),
        we.member("herd-a"),
        we.fail("create", VMI, "herd-a", 409),
        we.report(SET, "herd", replicas=1),
        kept(lambda made: Run(lost_answers=1, faults=(Interval(START, made.now),))),
    ),
    "many patches of a member": case(
        a_pool(1),
        *(we.patch(VM, "pool-0", {"metadata": {"labels": {"x": str(index)}}}) for index in range(20)),
        broken("20 requests to patch"),
    ),
    "a status that is written too often": case(
        a_pool(1), wait(60), *(we.report(POOL, "pool", replicas=index) for index in range(20)), broken("in a second")
    ),
}


def repeated_after(seconds: float, retry_after_s: float = 5.0) -> Run:
    """A create is refused with Retry-After, and repeated later."""
    refused = Answer(START, "POST", PATH, 429, retry_after_s)
    return Run(answers=(refused, Answer(START + seconds, "POST", PATH, 201)))


Q5: Cases = {
    "a repeat after the time": (kept(repeated_after(5.5)),),
    "a repeat before the time": (broken("is repeated before Retry-After: 5", repeated_after(2)),),
    "a very long time is capped": (kept(repeated_after(301, retry_after_s=86_400)),),
}
