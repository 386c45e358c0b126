"""Safety invariants about deletions: S13 and S14 (P20).

- S13: a VM of a pool is deleted to be replaced only if its successor is tried before. The last create request for its
  name, dry runs included, must come in the last `TRIED_WITHIN_S` seconds before the delete, and the server must accept
  it. A name that exists already counts as accepted, because the server compares names last. So does a quota in which
  the delete makes room. While every create is refused, no VM is deleted to be replaced.
- S14: the version of an object that a delete request hits is not protected, busy or delicate. There is no window: each
  delete has a version as precondition. The instance of a VM may be protected, because a restart keeps the VM. If the
  owner lets its VMs drain, a VM that runs has the mark and the answer (P26). No deadline passes in the runs.
"""

import re
from collections.abc import Iterator
from typing import Final

from tests.faults.judge import states
from tests.faults.judge.history import Change, History, Request, World, answered_uid
from tests.faults.judge.judge import Finding, Run, Violation, described, found, invariant
from tests.faults.judge.reasons import reason_of
from tests.faults.judge.states import POOL, SET, VM, VMI, Object
from tests.faults.judge.timelines import Step, fewest_wanted, our_deletes

TRIED_WITHIN_S: Final = 30.0
UNDER_WAY_S: Final = 0.1
"""When the refusals begin, a delete request may be under way for this time."""

CONDITIONS: Final = {VM: ("VolumesChange", "ManualRecoveryRequired"), VMI: ("VolumesChange", "Paused")}
WORDS: Final = ("Paused", "frozen")
"""The conditions and the words in a status that show that the object is delicate."""

_QUOTA: Final = re.compile(r"exceeded quota: .* used: \S+=(\d+), limited: \S+=(\d+)")


@invariant("S13")
def s13_a_vm_is_replaced_only_if_its_successor_is_accepted(history: History, run: Run) -> Iterator[Finding]:
    for step in our_deletes(history):
        if step.timeline.kind == POOL and _is_replaced(history, step, run):
            yield found("S13", _refused(history, run, step.change), step.change)


def _is_replaced(history: History, step: Step, run: Run) -> bool:
    """Return True if the VM cannot be a surplus VM. Only VMs that are replaced are deleted in the foreground."""
    author = step.change.author
    if reason_of(history, step, run)[0] not in ("outdated", "healing"):
        return False
    in_foreground = author is not None and (author.body or {}).get("propagationPolicy") == "Foreground"
    window, owners = step.timeline.window(run, step.index), step.timeline.owners(run, step.index)
    return in_foreground or max(point.staying for point in window) <= fewest_wanted(owners)


def _refused(history: History, run: Run, change: Change) -> str:
    """Return the reason why the successor of a deleted VM could not come back, or ""."""
    time = change.write.time
    if any(each.start + UNDER_WAY_S < time < each.end for each in run.refused):
        return f"{change.name} is deleted to be replaced, but all creates are refused"
    tries = [
        each
        for each in history.ours
        if each.kind == VM and each.verb == "create" and each.name == change.name and each.time <= time
        if time - TRIED_WITHIN_S <= each.answered and answered_uid(each) != change.uid
    ]
    if not tries:
        return f"{change.name} is deleted to be replaced, but its successor was not tried"
    message = (tries[-1].answer or {}).get("message")
    return "" if _is_accepted(tries[-1]) else f"{change.name} is deleted, but its successor was refused: {message}"


def _is_accepted(create: Request) -> bool:
    answer = create.answer or {}
    quota = _QUOTA.search(str(answer.get("message")))
    in_quota = quota is not None and int(quota[1]) <= int(quota[2])
    return create.succeeded or answer.get("reason") == "AlreadyExists" or in_quota


@invariant("S14")
def s14_nothing_protected_or_delicate_is_deleted(history: History, run: Run) -> Iterator[Finding]:
    for change, world in history.replay():
        author, item = change.author, change.before
        if item is None or change.kind not in (VM, VMI) or not change.ours or not change.starts_deletion:
            continue
        owner = world.by_uid(states.controller_uid(item))
        if author is None or author.verb != "delete" or (owner is not None and states.is_deleting(owner)):
            continue
        problem = _reason_to_keep(item) or _must_drain(item, world)
        yield Violation("S14", f"{change.name} is deleted, but {problem}", described(change)) if problem else None


def _must_drain(item: Object, world: World) -> str:
    """Return the reason why the VM or VMI had to drain first, or ""."""
    vm = world.by_uid(states.controller_uid(item)) if item["kind"] == VMI else None
    member = vm if vm is not None and vm["kind"] == VM else item
    owner, vmi = world.by_uid(states.controller_uid(member)), world.get(VMI, states.name_of(item))
    if owner is None or states.DRAIN_SECONDS not in states.annotations_of(owner):
        return ""
    runs = vmi is not None and states.status_of(vmi).get("phase") == "Running" and not states.is_deleting(vmi)
    notes = states.annotations_of(member)
    has_drained = states.DRAINING in notes and notes.get(states.DRAINED) == "true"
    return "has not drained" if runs and not has_drained else ""


def _reason_to_keep(item: Object) -> str:
    """Return the reason why the controller must not delete this VM or VMI, or ""."""
    owner = (states.controller_of(item) or {}).get("kind")
    if owner in (POOL, SET) and states.is_protected(item):
        return "is protected"
    status = states.status_of(item)
    if states.is_final(item):
        return ""
    if states.is_busy(item):
        return "is busy"
    if owner not in (POOL, VM):
        return ""
    marks = [key for key in ("snapshotInProgress", "restoreInProgress", "migratedVolumes") if status.get(key)]
    marks += [key for key in CONDITIONS[item["kind"]] if states.is_true(item, key)]
    marks += [text for text in (status.get("printableStatus"), status.get("fsFreezeStatus")) if text in WORDS]
    return f"is delicate: {', '.join(marks)}" if marks else ""
