"""The restarts of VMs by their pool, for S1 and S7. The controller deletes the VMI, or sends a request to the
subresource `restart`.
"""

from collections.abc import Iterator

from msgspec import Struct

from tests.faults.judge import states
from tests.faults.judge.history import Change, History, Request
from tests.faults.judge.judge import Run
from tests.faults.judge.states import POOL, REVISION_LABEL, VM, VMI, Object


class Restart(Struct, frozen=True):
    """A restart of a VM by the controller.

    `vms` are the states of the VM in the window of the restart, and `pools` are the states of the VM's pool. `vmi` is
    the VM's VMI, or None if the VMI is unknown.
    """

    name: str
    evidence: str
    vms: tuple[Object, ...]
    pools: tuple[Object, ...]
    vmi: Object | None = None


def states_in(changes: tuple[Change, ...], start: float, end: float) -> tuple[Object, ...]:
    """Return the states of an object between two times, and the state at the start."""
    before = [each for each in changes if each.time <= end]
    recent = (each.after for n, each in enumerate(before) if n == len(before) - 1 or before[n + 1].time >= start)
    return tuple(item for item in recent if item is not None)


def states_before(history: History, change: Change, run: Run) -> tuple[Object, ...]:
    """Return the states of the object in the window of the change, without the state that the change made."""
    earlier = tuple(each for each in history.objects[change.kind, change.uid] if each.number < change.number)
    return states_in(earlier, run.window(change.time), float("inf"))


def states_read(changes: tuple[Change, ...], read: Request) -> tuple[Object, ...]:
    """Return the states of an object that a read may have returned.

    A state exists before its writer gets the answer. So a state counts from the begin of its write to the end of the
    next write.
    """
    begins = [each.time if each.author is None else each.author.time for each in changes]
    ends = [*(each.time for each in changes[1:]), float("inf")]
    known = zip(changes, begins, ends, strict=True) if changes else ()
    return tuple(each.after for each, begin, end in known if each.after and begin <= read.answered and read.time < end)


def restarts(history: History, run: Run) -> Iterator[Restart]:
    """Yield the restarts of the controller."""
    for change in history.changes:
        if change.kind == VMI and change.ours and change.starts_deletion and change.before is not None:
            owner = (VM, states.controller_uid(change.before))
            if owner in history.objects:
                yield _restart(history, run, owner, change.time, str(change.author), change.before)
    vms = {change.name: (VM, change.uid) for change in history.changes if change.kind == VM}
    for write in history.ours:
        if write.subresource == "restart" and write.succeeded and write.name in vms:
            yield _restart(history, run, vms[write.name], write.time, str(write), None)


def _restart(
    history: History, run: Run, vm: tuple[str, str], time: float, evidence: str, vmi: Object | None
) -> Restart:
    start = run.window(time)
    changes = history.objects[vm]
    versions = states_in(changes, start, time)
    owners = {states.controller_uid(item) for item in versions} - {""}
    pools = [state for uid in owners for state in states_in(history.objects.get((POOL, uid), ()), start, time)]
    return Restart(changes[0].name, evidence, versions, tuple(pools), vmi)


def unfounded(restart: Restart) -> str:
    """If the pool had no reason for the restart, return what is wrong. Otherwise return an empty text (S1)."""
    if restart.pools and all(states.strategy(pool, "updateStrategy")[0] != "proactive" for pool in restart.pools):
        return f"{restart.name} is restarted, but the update strategy forbids restarts"
    if restart.vms and all(_is_delicate(vm) for vm in restart.vms):
        return f"{restart.name} is restarted during a snapshot or a restore"
    if restart.vmi is None or not restart.vms:
        return ""
    running = states.labels_of(restart.vmi).get(REVISION_LABEL)
    same = all(states.labels_of(vm).get(REVISION_LABEL) == running for vm in restart.vms)
    return f"{restart.name} is restarted, but its VMI has the revision of the VM" if same and running else ""


def in_pause(restart: Restart) -> str:
    """Return an error text if the pool was paused or being deleted in all states of the window (S7), or ""."""
    stopped = restart.pools and all(states.is_paused(pool) or states.is_deleting(pool) for pool in restart.pools)
    return f"{restart.name} is restarted during a pause" if stopped else ""


def _is_delicate(vm: Object) -> bool:
    status = states.status_of(vm)
    return bool(status.get("snapshotInProgress") or status.get("restoreInProgress"))
