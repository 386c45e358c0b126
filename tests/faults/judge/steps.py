"""Histories of the judge's tests, told in steps. A case is a tuple of steps, and of expectations between the steps.

    (a_set(2), user.patch(VMI, "herd-a", DETACHED), we.delete(VMI, "herd-a"), broken("belongs to no owner"))

A step changes the made history. A member or a scale belongs to the owner that was created last.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct

from tests.faults.judge.judge import Run, examine
from tests.faults.judge.made_history import (
    COLLECTOR,
    OURS,
    SIMULATOR,
    USER,
    Made,
    pool,
    ready,
    replica_set,
    revision_of,
    set_revision_of,
    vm,
    vmi,
)
from tests.faults.judge.states import POOL, REVISION_LABEL, SET, VM, VMI, Object

Step: TypeAlias = Callable[[Made], object]
RUN: Final = Run()


class Expectation(Struct, frozen=True):
    """What the judge finds in the history so far. Without a `text`, it finds nothing and has checked something."""

    text: str = ""
    run: Run | Callable[[Made], Run] = RUN
    is_checked: bool = True

    def check(self, made: Made, number: str) -> None:
        run = self.run if isinstance(self.run, Run) else self.run(made)
        verdict = examine(made.history(), run, only={number})
        if self.text:
            assert any(self.text in each.message for each in verdict.violations), str(verdict)
            return
        assert not verdict.violations, str(verdict)
        assert (verdict.checks[number] > 0) is self.is_checked, f"{number} was checked {verdict.checks[number]} times"


KEPT: Final = Expectation()
UNCHECKED: Final = Expectation(is_checked=False)
Case: TypeAlias = tuple[Step | Expectation, ...]
Cases: TypeAlias = Mapping[str, Case]
"""The cases of one invariant by name."""


def case(*told: Step | Expectation) -> Case:
    return told


def kept(run: Run | Callable[[Made], Run]) -> Expectation:
    return Expectation(run=run)


def broken(text: str, run: Run | Callable[[Made], Run] = RUN) -> Expectation:
    """The judge finds a violation whose message contains the text."""
    return Expectation(text, run)


def at_rest(made: Made) -> Run:
    """The controller is at rest from now on."""
    return Run(settled_from=made.now)


def tell(case: Case, number: str) -> None:
    """Make the history, and check the expectations about this invariant."""
    made = Made()
    for each in case:
        if isinstance(each, Expectation):
            each.check(made, number)
        else:
            each(made)


class Client:
    """The steps of one client of the API server."""

    def __init__(self, by: str) -> None:
        self._by = by

    def create(self, item: Object | Callable[[Made], Object], **more: Any) -> Step:
        return lambda made: made.create(item if isinstance(item, dict) else item(made), by=self._by, **more)

    def member(self, name: str, *, credential: str = "", **more: Any) -> Step:
        """Create a VMI of the set, or a VM of the pool."""

        def step(made: Made) -> Object:
            make = vmi if made.owner["kind"] == SET else vm
            return made.create(make(name, made.owner, **more), by=self._by, credential=credential)

        return step

    def patch(self, kind: str, name: str, change: Any, **more: Any) -> Step:
        return lambda made: made.patch(kind, name, change, by=self._by, **more)

    def guarded_patch(self, kind: str, name: str, change: Any, *paths: str, **more: Any) -> Step:
        """The body is a JSON patch that tests the UID and these paths."""

        def step(made: Made) -> Object:
            uid = made.get(kind, name)["metadata"]["uid"]
            body = [{"op": "test", "path": path, "value": uid} for path in ("/metadata/uid", *paths)]
            return made.patch(kind, name, change, by=self._by, body=body, **more)

        return step

    def report(self, kind: str, name: str, **status: Any) -> Step:
        """Write the status through its subresource."""
        return self.patch(kind, name, {"status": status}, subresource="status")

    def delete(self, kind: str, name: str, **more: Any) -> Step:
        return lambda made: made.delete(kind, name, by=self._by, **more)

    def fail(self, verb: str, kind: str, name: str, code: int, **more: Any) -> Step:
        return lambda made: made.fail(verb, kind, name, code, by=self._by, **more)


we, user, simulator, collector = Client(OURS), Client(USER), Client(SIMULATOR), Client(COLLECTOR)

DETACHED: Final = {"metadata": {"ownerReferences": None}}
RELABELED: Final = {"metadata": {"labels": {"app": "other"}}}
UNFINALIZED: Final = {"metadata": {"finalizers": None}}
PAUSED: Final = {"spec": {"paused": True}}
FAILED: Final = {"status": {"phase": "Failed"}}
SNAPSHOT: Final = {"status": {"snapshotInProgress": "s"}}
KEEP: Final[dict[str, Any]] = {"scaleInStrategy": {"proactive": {"statePreservation": "Offline"}}}


def steps(*several: Step) -> Step:
    def step(made: Made) -> None:
        for each in several:
            each(made)

    return step


def wait(seconds: float) -> Step:
    return lambda made: made.wait(seconds)


def lease(holder: str, credential: str) -> Step:
    """A controller writes the lease."""
    return lambda made: made.lease(holder, credential=credential)


def scale(replicas: int) -> Step:
    return lambda made: made.patch(made.owner["kind"], made.owner["metadata"]["name"], {"spec": {"replicas": replicas}})


def a_set(replicas: int, **more: Any) -> Step:
    """A set with all its VMIs, each ready."""
    members = [
        step
        for letter in "abcdefgh"[:replicas]
        for step in (we.member(f"herd-{letter}"), simulator.patch(VMI, f"herd-{letter}", ready()))
    ]
    return steps(user.create(replica_set(replicas, **more)), *members)


def reported_set(replicas: int) -> Step:
    """A set with all its VMIs and a correct status."""
    counts = {"replicas": replicas, "readyReplicas": replicas, "observedGeneration": 1}
    return steps(a_set(replicas), we.report(SET, "herd", **counts, labelSelector="app=herd"))


def a_pool(replicas: int, **more: Any) -> Step:
    """A pool with its revision and all its VMs, each ready."""
    members = [
        step
        for number in range(replicas)
        for step in (we.member(f"pool-{number}"), simulator.patch(VM, f"pool-{number}", ready()))
    ]
    return steps(user.create(pool(replicas, **more)), we.create(revision()), *members)


def revision(name: str = "pool-1") -> Callable[[Made], Object]:
    """A revision of the pool with its current spec."""
    return lambda made: revision_of(made.owner, name)


def set_revision(hashed: str, **more: Any) -> Callable[[Made], Object]:
    """A revision of the set with its current template."""
    return lambda made: {**set_revision_of(made.owner, hashed), **more}


def vmi_of(name: str, revision: str = "pool-1") -> Step:
    """The simulator creates the VMI of this VM."""
    return simulator.create(lambda made: vmi(name, made.get(VM, name), labels={REVISION_LABEL: revision}))


def running_pool(replicas: int, **more: Any) -> Step:
    """A pool whose VMs have VMIs, each ready."""
    names = [f"pool-{number}" for number in range(replicas)]
    vmis = [step for name in names for step in (vmi_of(name), simulator.patch(VMI, name, ready()))]
    return steps(a_pool(replicas, **more), *vmis)


def deleted_vm(name: str = "pool-0") -> Step:
    """A user deletes the VM, and the controller removes its finalizer."""
    return steps(user.delete(VM, name), we.patch(VM, name, UNFINALIZED))


def new_template(template: Object) -> Step:
    return user.patch(POOL, "pool", {"spec": {"virtualMachineTemplate": template}})
