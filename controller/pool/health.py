"""The state of a pool: one word, the first problem of a VM, and the reason why the pool is stalled (P17).

The state depends only on the snapshot, so it is the same after a restart of the controller.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from msgspec import Struct

from controller.apimachinery.conditions import Condition, with_timezone
from controller.kubevirt import vmis
from controller.kubevirt.annotations import is_protected
from controller.kubevirt.problems import (
    CRASH_LOOP,
    NOT_READY,
    UNDECODABLE,
    Problem,
    cause_text_of_vm,
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
from controller.pool.healing.failing import count_recovering, read_records
from controller.pool.leaving.claims import lacking_finalizer
from controller.pool.members.ledger import member_stuck_since, member_unready_since
from controller.pool.members.machine import Machine, Machines
from controller.pool.members.select import allows
from controller.pool.members.situation import Situation
from controller.pool.members.snapshot import LiveUpdates, Snapshot
from controller.pool.rollout.live import late_change
from controller.pool.rollout.steps import is_updated, pending_step
from controller.pool.spec.policies import Strategy
from controller.pool.substitutes import choose_leavers, first_lost_problem, lost_problem
from controller.replicas import kstatus
from controller.replicas.kstatus import (
    Activity,
    Health,
    Trouble,
    Waits,
    is_overdue,
    plan_deadline,
    terminating_troubles,
)
from controller.runtime.actions import Plan

STARTING = frozenset({"", "Starting", "Provisioning", "WaitingForVolumeBinding", "Stopping", "Stopped"})
"""The values of `printableStatus` of a VM that is starting or restarting."""


def health_of(situation: Situation, failure: Condition | None, waits: Waits) -> Health:
    """Return the state of a valid pool. `failure` is the new condition `ReplicaFailure`, or None."""
    updates, deadline = _will_update(situation), situation.intent.settings.deadline
    late = late_live_change(situation) if updates else None
    return kstatus.health_of(
        situation.snapshot,
        find_troubles(situation, deadline),
        _activity(situation, updates=updates),
        waits,
        deadline=deadline,
        failure=failure,
        late=late_change(late) if late is not None else "",
        # A lost VM whose work others do is no failure of the pool. The status names it nevertheless.
        aside=first_lost_problem(situation),
    )


def plan_progress(situation: Situation) -> Plan:
    deadline = situation.intent.settings.deadline
    starts = [part.deadline_start for part in _unready_parts(situation)]
    starts += (situation.snapshot.live or LiveUpdates()).since.values()
    starts += [with_timezone(each.metadata.deletion_timestamp) for each in _deleting(situation.snapshot)]
    return plan_deadline(starts, situation.now, deadline)


def _will_update(situation: Situation) -> bool:
    """Return True if the controller will update a member without a user, now or in a later step of the partition."""
    needy = situation.members.where(lambda each: _needs_update(situation, each)).without(situation.replaced)
    return any(map(situation.is_in_steps, needy))


def _needs_update(situation: Situation, machine: Machine) -> bool:
    """Return True for a VM that will be updated, if its ordinal is not below the partition."""
    vmi = machine.vmi
    if is_updated(situation.revisions, machine) or not situation.may_update(machine):
        return False
    is_proactive = situation.intent.update.strategy is Strategy.PROACTIVE
    is_restarting = is_proactive and vmi is not None and not vmis.is_active(vmi)
    return is_restarting or pending_step(situation, machine) is not None


def find_troubles(situation: Situation, deadline: timedelta) -> list[Trouble]:
    """Return the problems of the pool's VMs, in the order of their names. If several VMs have equal traits, the result
    has only the first of them. VMs that stay Terminating come last.
    """

    def problem_of(machine: Machine, since: datetime | None, *, overdue: bool) -> Problem | None:
        return lost_problem(situation, machine) or _problem(machine, since, overdue=overdue)

    def found() -> Iterator[tuple[tuple[int, str], Problem, datetime | None]]:
        for part in _unready_parts(situation):
            since = member_stuck_since(situation.snapshot.revisions, part.traits)
            overdue = is_overdue(since, situation.now, deadline)
            if problem_of(part.traits, since, overdue=overdue) is not None:
                first = min(part.machines, key=situation.snapshot.rank_of)
                problem = problem_of(first, since, overdue=overdue)
                assert problem is not None, "the members of a group have equal traits"
                yield situation.snapshot.rank_of(first), problem, part.deadline_start

    in_order = sorted(found(), key=lambda each: each[0])
    in_turn: list[Trouble] = [(problem, since) for _, problem, since in in_order]
    return in_turn + terminating_troubles(situation.snapshot.members, situation.now, deadline)


class _Part(Struct, frozen=True):
    """VMs with equal traits that are not ready. `deadline_start` is the start of their progress deadline, or None."""

    traits: Machine
    machines: Iterable[Machine]
    deadline_start: datetime | None


def _unready_parts(situation: Situation) -> Iterator[_Part]:
    for group in _unready(situation).groups:
        since = member_stuck_since(situation.snapshot.revisions, group.traits)
        if not _needs_update(situation, group.traits):
            yield _Part(group.traits, group, since)
            continue
        parts: defaultdict[datetime | None, list[Machine]] = defaultdict(list)
        for each in group:
            updates = situation.is_above_partition(each)
            parts[_start_of_outdated(situation, each, since) if updates else since].append(each)
        for start, machines in parts.items():
            yield _Part(group.traits, machines, start)


def _start_of_outdated(situation: Situation, machine: Machine, since: datetime | None) -> datetime | None:
    """Return the start of the progress deadline of an unready VM that the controller will update.

    Usually the update solves the VM's problem, so there is no deadline. But if the update of the VM is held, or if its
    old VMI stays Terminating, the VM blocks the update of other VMs (P22).
    """
    terminating = vmis.terminating_since(machine.vmi) if machine.vmi is not None else None
    if terminating is not None:
        return since or terminating
    step = pending_step(situation, machine)
    return since if step is not None and step.reason else None


def should_be_ready(machine: Machine) -> bool:
    """Return True if a VM is not ready that should run. The run strategy of an unreadable VM is unknown."""
    vm = machine.vm
    return (is_meant_to_run(vm) or bool(vm.undecodable)) and not is_deleting(vm) and not is_fully_ready(machine)


def _unready(situation: Situation) -> Machines:
    """Return the VMs that should be ready and are not, also those that are released. Lost VMs whose work others do are
    left out (P28).
    """
    return situation.snapshot.members.where(should_be_ready).without(situation.replaced)


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
        return Problem(name, problem_state(state), cause_text_of_vm(vm, vmi), since)
    crashes = bool(start_failures_of(vm)) or (machine.downtime is not None and machine.downtime.crashes)
    if crashes and not is_ready(vm) and not (vmi is not None and vmis.is_paused(vmi)):
        return Problem(name, CRASH_LOOP, "", since)
    booting = state in STARTING or is_ready(vm) or (vmi is not None and is_booting(vmi, member_unready_since(machine)))
    if booting and not overdue:
        return None
    return Problem(name, state or "Pending", cause_text_of_vm(vm, vmi) or NOT_READY, since)


def late_live_change(situation: Situation) -> Machine | None:
    """Return the first VM whose live change has exceeded the progress deadline, or None."""
    since, deadline = (situation.snapshot.live or LiveUpdates()).since, situation.intent.settings.deadline
    if not since:
        return None

    def is_changing(machine: Machine) -> bool:
        step = pending_step(situation, machine) if situation.may_update(machine) else None
        return step is not None and step.is_unfinished

    changing = filter(situation.is_above_partition, situation.members.where(is_changing))
    overdue = (each for each in changing if is_overdue(since.get(each.metadata.uid), situation.now, deadline))
    return min(filter(is_changing, overdue), key=situation.snapshot.rank_of, default=None)


def _activity(situation: Situation, *, updates: bool) -> Activity:
    members, claims = situation.members, situation.claims
    is_short = len(members) < situation.target.wanted
    leaves = bool(claims.released or claims.young or _deleting(situation.snapshot))
    return Activity(
        heals=count_recovering(situation, read_records(situation)).number > 0,
        scales=is_short or leaves or _has_deletable_surplus(situation),
        updates=updates or _lacks_finalizers(situation),
        starts=bool(_unready(situation)),
        runs=members.some(lambda each: is_meant_to_run(each.vm)),
    )


def _lacks_finalizers(situation: Situation) -> bool:
    """Return True if the disks of a VM must be kept, but the VM does not have the finalizer yet (P10)."""
    return situation.intent.scale_in.preserve and any(lacking_finalizer(situation.snapshot, situation.snapshot.members))


def _has_deletable_surplus(situation: Situation) -> bool:
    """Return True if the controller will delete VMs. A surplus stays if the scale-in policy or a mark keeps it (P8)."""
    intent = situation.intent
    if situation.surplus <= 0 or intent.scale_in.strategy is not Strategy.PROACTIVE:
        return False
    candidates, *_ = choose_leavers(situation)
    return candidates.some(lambda each: allows(intent.scale_in.selection, each.vm) and not is_protected(each.metadata))
