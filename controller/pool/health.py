"""The state of a pool: one word, the first problem of a VM, and the reason why the pool is stalled (P17).

The state depends only on the snapshot, so it is the same after a restart of the controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition, with_timezone
from controller.kubevirt import vmis
from controller.kubevirt.annotations import TAKEOVER, is_protected, is_takeover_held
from controller.kubevirt.pool_types import PoolStatus
from controller.kubevirt.problems import (
    CRASH_LOOP,
    NOT_READY,
    UNDECODABLE,
    Problem,
    cause_of_vm,
    is_booting,
    one_line,
    problem_state,
    terminating_problem,
    text_of,
)
from controller.kubevirt.vms import (
    BROKEN_STATES,
    is_deleting,
    is_meant_to_run,
    is_ready,
    printable_status_of,
    start_failures_of,
)
from controller.pool.failures import start_failure_of
from controller.pool.healing.records import count_recovering, read_records
from controller.pool.leaving.claims import by_name
from controller.pool.leaving.disks import is_safe_to_delete
from controller.pool.members.downtime import stuck_since, unready_since
from controller.pool.members.machine import Machine, Machines
from controller.pool.members.revisions import Revisions
from controller.pool.members.select import allows
from controller.pool.members.snapshot import Snapshot
from controller.pool.rollout.brake import PROCEED, is_taken_over
from controller.pool.rollout.limits import partition_of
from controller.pool.rollout.steps import PendingStep, is_updated, pending_step
from controller.pool.spec.intent import Intent
from controller.pool.spec.policies import Strategy
from controller.replicas.kstatus import (
    Health,
    Stall,
    Waits,
    Word,
    is_overdue,
    plan_deadline,
    sort_waits,
    stall_of,
    texts_of,
    word_of,
)
from controller.replicas.progress import parse_deadline
from controller.replicas.replica_limit import limit_stall
from controller.runtime.actions import Plan

STARTING = frozenset({"", "Starting", "Provisioning", "WaitingForVolumeBinding", "Stopping", "Stopped"})
"""The values of `printableStatus` of a VM that is starting or restarting."""


def health_of(snapshot: Snapshot, intent: Intent, revisions: Revisions, failure: Condition | None) -> Health:
    """Return the state of a valid pool. `failure` is the new condition `ReplicaFailure`, or None."""
    old = snapshot.owner.status or PoolStatus()
    if snapshot.owner.spec.paused:
        return Health(Word.PAUSED)
    deadline = parse_deadline(snapshot.owner.metadata)
    updates = _will_update(snapshot, intent, revisions)
    waits = find_waits(snapshot, intent, revisions, deadline)
    problem = waits.problems[0].text_after(texts_of(old.conditions)) if waits.problems else ""
    if failure is not None:
        problem = text_of(failure)
    stall = stall_of(waits, failure, old.conditions, now=snapshot.now, deadline=deadline)
    stall = stall or _blocked(snapshot, intent, revisions, updates=updates)
    if stall is not None:
        return Health(Word.DEGRADED, stall.message, stall)
    if failure is not None:
        return Health(Word.DEGRADED, problem)
    return Health(_word(snapshot, intent, updates=updates, has_problem=bool(problem)), problem)


def plan_progress(snapshot: Snapshot, intent: Intent, revisions: Revisions) -> Plan:
    """Return a plan that asks for a reconciliation when the progress deadline of a VM ends."""
    deadline = parse_deadline(snapshot.owner.metadata)
    starts = [part.deadline_start for part in _unready_parts(snapshot, intent, revisions)]
    starts += [with_timezone(each.metadata.deletion_timestamp) for each in _deleting(snapshot)]
    return plan_deadline(starts, snapshot.now, deadline)


def will_be_updated(snapshot: Snapshot, intent: Intent, revisions: Revisions, machine: Machine) -> bool:
    """Return True if the VM or its VMI is outdated, and the controller will update it without a user.

    A VM that the update strategy, the selectors or the partition leave out stays outdated.
    """
    return _needs_update(snapshot, intent, revisions, machine) and _is_above(machine, snapshot, partition_of(snapshot))


def _will_update(snapshot: Snapshot, intent: Intent, revisions: Revisions) -> bool:
    """Return True if `will_be_updated` is true for a member."""
    partition = partition_of(snapshot)
    needy = snapshot.members.where(lambda each: _needs_update(snapshot, intent, revisions, each))
    return any(_is_above(each, snapshot, partition) for each in needy)


def _is_above(machine: Machine, snapshot: Snapshot, partition: int) -> bool:
    ordinal = snapshot.ordinal_of(machine)
    return ordinal is not None and ordinal >= partition


def _needs_update(snapshot: Snapshot, intent: Intent, revisions: Revisions, machine: Machine) -> bool:
    """Return True for a VM that will be updated, if its ordinal is not below the partition."""
    vm, vmi = machine.vm, machine.vmi
    if is_updated(revisions, machine) or intent.update.strategy is Strategy.UNMANAGED or is_deleting(vm):
        return False
    if not allows(intent.update.selection, vm):
        return False
    is_restarting = intent.update.strategy is Strategy.PROACTIVE and vmi is not None and not vmis.is_active(vmi)
    return is_restarting or pending_step(snapshot, intent, revisions, machine) is not None


def find_waits(snapshot: Snapshot, intent: Intent, revisions: Revisions, deadline: timedelta) -> Waits:
    """Return the problems of the pool's VMs, in the order of their names. If several VMs have equal traits, the result
    has only the first of them. VMs that stay Terminating come last.
    """

    def found() -> Iterator[tuple[tuple[int, str], Problem, datetime | None]]:
        for part in _unready_parts(snapshot, intent, revisions):
            since = stuck_since(snapshot, part.example)
            problem = _problem(part.example, since, overdue=is_overdue(since, snapshot.now, deadline))
            if problem is not None:
                ordinal, name = min(map(snapshot.rank_of, part.machines))
                yield (ordinal, name), replace(problem, name=name), part.deadline_start

    in_order = sorted(found(), key=lambda each: each[0])
    stuck = [terminating_problem(each.metadata) for each in by_name(_deleting(snapshot))]
    overdue = [(problem, problem.since) for problem in stuck if is_overdue(problem.since, snapshot.now, deadline)]
    return sort_waits([*((problem, since) for _, problem, since in in_order), *overdue], snapshot.now, deadline)


class _Part(Struct, frozen=True):
    """VMs with equal traits that are not ready. `deadline_start` is the start of their progress deadline, or None."""

    machines: Iterable[Machine]
    deadline_start: datetime | None

    @property
    def example(self) -> Machine:
        return next(iter(self.machines))


def _unready_parts(snapshot: Snapshot, intent: Intent, revisions: Revisions) -> Iterator[_Part]:
    partition = partition_of(snapshot)
    for group in _unready(snapshot).groups:
        since = stuck_since(snapshot, group[0])
        if not _needs_update(snapshot, intent, revisions, group[0]):
            yield _Part(group, since)
            continue
        above = [each for each in group if _is_above(each, snapshot, partition)] if partition else list(group)
        below = [each for each in group if not _is_above(each, snapshot, partition)] if partition else []
        if above:
            yield _Part(above, _start_of_outdated(snapshot, intent, revisions, above[0], since))
        if below:
            yield _Part(below, since)


def _start_of_outdated(
    snapshot: Snapshot, intent: Intent, revisions: Revisions, machine: Machine, since: datetime | None
) -> datetime | None:
    """Return the start of the progress deadline of an unready VM that the controller will update.

    Usually the update solves the VM's problem, so there is no deadline. But if the update of the VM is held, or if its
    old VMI stays Terminating, the VM blocks the update of other VMs (P22).
    """
    terminating = vmis.terminating_since(machine.vmi) if machine.vmi is not None else None
    if terminating is not None:
        return since or terminating
    step = pending_step(snapshot, intent, revisions, machine)
    return since if step is not None and step.reason else None


def _should_be_ready(machine: Machine) -> bool:
    """Return True if a VM is not ready that should run. The run strategy of an unreadable VM is unknown."""
    vm = machine.vm
    return (is_meant_to_run(vm) or bool(vm.undecodable)) and not is_deleting(vm) and not is_fully_ready(machine)


def _unready(snapshot: Snapshot) -> Machines:
    return snapshot.members.where(_should_be_ready)


def _deleting(snapshot: Snapshot) -> Machines:
    return snapshot.members.where(lambda each: is_deleting(each.vm))


def is_fully_ready(machine: Machine) -> bool:
    """Return True if both the VM and its VMI are ready.

    The function also checks the VMI, because the status of the VM can be older than the status of the VMI.
    """
    return is_ready(machine.vm) and machine.vmi is not None and vmis.is_ready(machine.vmi)


def _problem(machine: Machine, since: datetime | None, *, overdue: bool) -> Problem | None:
    """Return the problem of a VM that is not ready, or None if the VM starts in a normal way."""
    vm, vmi, name, state = machine.vm, machine.vmi, machine.metadata.name, printable_status_of(machine.vm)
    if overdue and vmi is not None and vmis.is_deleting(vmi):
        return terminating_problem(vmi.metadata)
    if undecodable := vm.undecodable or (vmi.undecodable if vmi is not None else ""):
        return Problem(name, UNDECODABLE, one_line(undecodable), since)
    failure = start_failure_of(machine)
    if failure is not None:
        return Problem(name, failure.reason or failure.type, text_of(failure), since)
    if state in BROKEN_STATES:
        return Problem(name, problem_state(state), text_of(cause_of_vm(vm, vmi)), since)
    crashes = machine.downtime is not None and machine.downtime.crashes
    if not is_ready(vm) and (start_failures_of(vm) or crashes):
        return Problem(name, CRASH_LOOP, "", since)
    booting = state in STARTING or is_ready(vm) or (vmi is not None and is_booting(vmi, unready_since(machine)))
    if booting and not overdue:
        return None
    return Problem(name, state or "Pending", text_of(cause_of_vm(vm, vmi)) or NOT_READY, since)


def _blocked(snapshot: Snapshot, intent: Intent, revisions: Revisions, *, updates: bool) -> Stall | None:
    """Return the stall of a pool that waits for a user, or None."""
    meta = snapshot.owner.metadata
    if updates and is_takeover_held(meta) and not is_taken_over(snapshot, revisions.template):
        return Stall("TakeoverHeld", f"the first update waits for the annotation {TAKEOVER}={PROCEED}")
    lost = _held_recreation(snapshot, intent, revisions) if updates else None
    if lost is not None:
        return Stall("UpdateHeld", f"{lost.machine.metadata.name} is not updated: {lost.reason}")
    return limit_stall(intent.wanted, len(snapshot.members), snapshot.limits.max_replicas)


def _held_recreation(snapshot: Snapshot, intent: Intent, revisions: Revisions) -> PendingStep | None:
    """Return the step of the first VM that needs new disks and waits for a user, or None."""
    partition = partition_of(snapshot)

    def step_of(machine: Machine) -> PendingStep | None:
        step = pending_step(snapshot, intent, revisions, machine) if not is_deleting(machine.vm) else None
        return step if step is not None and step.needs_user else None

    waiting = snapshot.members.where(
        lambda each: allows(intent.update.selection, each.vm) and step_of(each) is not None
    )
    above = (each for each in waiting if _is_above(each, snapshot, partition))
    first = min(above, key=snapshot.rank_of, default=None)
    return step_of(first) if first is not None else None


def _word(snapshot: Snapshot, intent: Intent, *, updates: bool, has_problem: bool) -> Word:
    members = snapshot.members
    if count_recovering(snapshot, intent, members, read_records(snapshot, intent)).number:
        return Word.HEALING
    if len(members) < intent.wanted or _deleting(snapshot) or _has_deletable_surplus(snapshot, intent):
        return Word.SCALING
    if updates or _lacks_finalizers(snapshot, intent):
        return Word.UPDATING
    if has_problem:
        return Word.DEGRADED
    if _unready(snapshot):
        # When the last VMs of an update start, all VMs have the current template. Only the previous status shows the
        # update.
        old = snapshot.owner.status or PoolStatus()
        previous = word_of(old.printable_status, old.conditions)
        return Word.UPDATING if previous == Word.UPDATING else Word.SCALING
    return Word.RUNNING if members.some(lambda each: is_meant_to_run(each.vm)) else Word.STOPPED


def _lacks_finalizers(snapshot: Snapshot, intent: Intent) -> bool:
    """Return True if the disks of a VM must be kept, but the VM does not have the finalizer yet (P10)."""
    return intent.scale_in.preserve and snapshot.members.some(
        lambda each: not is_deleting(each.vm) and not is_safe_to_delete(snapshot, each.vm)
    )


def _has_deletable_surplus(snapshot: Snapshot, intent: Intent) -> bool:
    """Return True if the controller will delete VMs. A surplus stays if the scale-in policy or a mark keeps it (P8)."""
    if len(snapshot.members) <= intent.wanted or intent.scale_in.strategy is not Strategy.PROACTIVE:
        return False
    selection = intent.scale_in.selection
    return snapshot.members.some(lambda each: allows(selection, each.vm) and not is_protected(each.metadata))
