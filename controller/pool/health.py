"""The state of a pool: one word, the first problem of a VM, and the reason why the pool is stalled (P17).

The state depends only on the snapshot, so it is the same after a restart of the controller.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from msgspec import Struct

from controller.apimachinery.conditions import Condition, with_timezone
from controller.kubevirt import vmis
from controller.kubevirt.annotations import is_protected, is_to_be_paused
from controller.kubevirt.problems import (
    CRASH_LOOP,
    NOT_READY,
    UNDECODABLE,
    Problem,
    cause_text_of_vm,
    is_booting,
    one_line,
    paused_problem,
    problem_state,
    terminating_problem,
    text_of,
)
from controller.kubevirt.standby import has_standby_mark
from controller.kubevirt.vms import BROKEN_STATES, is_deleting, is_ready, printable_status_of, start_failures_of
from controller.pool.failures import start_failure_of
from controller.pool.healing.failing import count_recovering, read_records
from controller.pool.leaving.claims import lacking_finalizer
from controller.pool.members.ledger import flapping_since, is_flapping, member_unready_since
from controller.pool.members.machine import Machine, Machines
from controller.pool.members.revisions import is_updated
from controller.pool.members.select import allows
from controller.pool.members.situation import Situation
from controller.pool.members.snapshot import LiveUpdates
from controller.pool.rollout.live import beginning_of_late_change, late_change
from controller.pool.rollout.steps import pending_step
from controller.pool.spec.policies import Strategy
from controller.pool.substitutes import choose_leavers, first_lost_problem, lost_problem
from controller.replicas import kstatus
from controller.replicas.conditions import DEADLINE, STALLED, true_condition
from controller.replicas.kstatus import (
    Activity,
    Health,
    Trouble,
    Waits,
    held_by_others,
    is_overdue,
    plan_deadline,
    plan_telling,
    terminating_troubles,
    told_after,
)
from controller.runtime.actions import Plan, join
from controller.runtime.members.groups import one_by_one

ENDS_SOON: Final = "its guest ends soon after it starts"

STARTING = frozenset({"", "Starting", "Provisioning", "WaitingForVolumeBinding", "Stopping", "Stopped"})
"""The values of `printableStatus` of a VM that is starting or restarting."""


def health_of(situation: Situation, failure: Condition | None, waits: Waits) -> Health:
    """Return the state of a valid pool. `failure` is the new condition `ReplicaFailure`, or None."""
    needy = situation.members.where(lambda each: _needs_update(situation, each)).without(situation.replaced)
    updates = any(map(situation.is_in_steps, needy))  # now or in a later step of the partition, and without a user
    late = late_live_change(situation) if updates else None
    return kstatus.health_of(
        situation.snapshot,
        find_troubles(situation),
        _activity(situation, updates=updates),
        waits,
        deadline=situation.intent.settings.deadline,
        failure=failure,
        late=late_change(late) if late is not None else "",
        # A lost VM whose work others do is no failure of the pool. The status names it nevertheless.
        asides=(first_lost_problem(situation), held_by_others(situation.snapshot.members)),
    )


def plan_progress(situation: Situation) -> Plan:
    deadline, now, parts = situation.intent.settings.deadline, situation.now, list(_unready_parts(situation))
    deleted = [with_timezone(each.metadata.deletion_timestamp) for each in _deleting(situation)]
    changing = (situation.snapshot.live or LiveUpdates()).since.values()
    starting = [
        flapping_since(situation.snapshot.revisions, each.traits, now)
        for each in parts
        if problem_of(situation, each.traits) is None
    ]
    stalls = plan_deadline([*(each.deadline_start for each in parts), *changing, *deleted], now, deadline)
    return join((stalls, plan_telling([*starting, *deleted], now, deadline)))


def _needs_update(situation: Situation, machine: Machine) -> bool:
    """Return True for a VM that will be updated, if its ordinal is not below the partition."""
    vmi = machine.vmi
    if is_updated(situation.revisions, machine) or not situation.may_update(machine):
        return False
    is_proactive = situation.intent.update.strategy is Strategy.PROACTIVE
    is_restarting = is_proactive and vmi is not None and not vmis.is_active(vmi)
    return is_restarting or pending_step(situation, machine) is not None


def find_troubles(situation: Situation) -> list[Trouble]:
    """Return the problems of the pool's VMs, in the order of their names. If several VMs have equal traits, the result
    has only the first of them. VMs that stay Terminating come last.
    """

    def found() -> Iterator[tuple[tuple[int, str], Problem, datetime | None]]:
        for part in _unready_parts(situation):
            if problem_of(situation, part.traits) is not None:
                first = min(part.machines, key=situation.snapshot.rank_of)
                problem = problem_of(situation, first)
                assert problem is not None, "the members of a group have equal traits"
                yield situation.snapshot.rank_of(first), problem, part.deadline_start

    in_order = sorted(found(), key=lambda each: each[0])
    in_turn: list[Trouble] = [(problem, since) for _, problem, since in in_order]
    return in_turn + terminating_troubles(situation.snapshot.members, situation.now, situation.intent.settings.deadline)


def problem_of(situation: Situation, machine: Machine) -> Problem | None:
    """Return the problem of a VM that is not ready, or that was ready for a short time only. All views name this one.

    A VM that starts in a normal way has none for a while. Then it is slow, until the progress deadline.
    """
    now, deadline, vmi = situation.now, situation.intent.settings.deadline, machine.vmi
    if vmi is not None and is_overdue(vmis.terminating_since(vmi), now, deadline):
        return terminating_problem(vmi.metadata)
    since = flapping_since(situation.snapshot.revisions, machine, now)
    found = lost_problem(situation, machine) or _failure(machine, since)
    # The caches may show the VM before its VMI.
    told = deadline if is_ready(machine.vm) else told_after(deadline)
    if found is not None or (_starts(machine) and not is_overdue(since, now, told)):
        return found
    state, detail = printable_status_of(machine.vm) or "Pending", cause_text_of_vm(machine.vm, vmi) or NOT_READY
    is_slow = _starts(machine) and not is_overdue(since, now, deadline)
    return Problem(machine.metadata.name, state, detail, since, is_slow)


class _Part(Struct, frozen=True):
    """VMs with equal traits that are not ready. `deadline_start` is the start of their progress deadline, or None."""

    traits: Machine
    machines: Iterable[Machine]
    deadline_start: datetime | None


def _unready_parts(situation: Situation) -> Iterator[_Part]:
    for group in _unready(situation).groups:
        since = flapping_since(situation.snapshot.revisions, group.traits, situation.now)
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
    """Usually the update solves the VM's problem, so there is no deadline. But if the update is held, or if the old VMI
    stays Terminating, the VM blocks the update of other VMs (P22).
    """
    terminating = vmis.terminating_since(machine.vmi) if machine.vmi is not None else None
    if terminating is not None:
        return since or terminating
    step = pending_step(situation, machine)
    return since if step is not None and step.reason else None


def should_be_ready(machine: Machine) -> bool:
    """Return True if a VM is not ready that should run. The run strategy of an unreadable VM is unknown."""
    vm = machine.vm
    return (machine.should_run or bool(vm.undecodable)) and not is_deleting(vm) and not is_fully_ready(machine)


def _unready(situation: Situation) -> Machines:
    """Return the VMs that should be ready and are not, also those that are released. A VM in a crash loop is not ready
    until it stays ready. Lost VMs whose work others do are left out (P28), and claimed ones (P33).
    """

    def is_unready(machine: Machine) -> bool:
        return should_be_ready(machine) or is_flapping(machine, situation.now)

    members = situation.members + situation.claims.young + one_by_one(situation.claims.released)
    return members.where(is_unready).without(situation.replaced)


def _deleting(situation: Situation) -> Machines:
    """Return the VMs that are being deleted. Standbys are left out, because no user waits for them (P32)."""
    deleting = situation.snapshot.members.where(lambda each: is_deleting(each.vm))
    return deleting.where(lambda each: not has_standby_mark(each.metadata))


def is_fully_ready(machine: Machine) -> bool:
    """Return True if the VM is ready, and its VMI too: the status of the VM can be older than that of the VMI."""
    return is_ready(machine.vm) and machine.vmi is not None and vmis.is_ready(machine.vmi)


def _failure(machine: Machine, since: datetime | None) -> Problem | None:
    vm, vmi, name, state = machine.vm, machine.vmi, machine.metadata.name, printable_status_of(machine.vm)
    if undecodable := vm.undecodable or (vmi.undecodable if vmi is not None else ""):
        return Problem(name, UNDECODABLE, one_line(undecodable), since)
    failure = start_failure_of(machine)
    if failure is not None:
        return Problem(name, failure.reason or failure.type, text_of(failure), since)
    if state in BROKEN_STATES:
        return Problem(name, problem_state(state), cause_text_of_vm(vm, vmi), since)
    if vmi is not None and vmis.is_paused(vmi) and not is_to_be_paused(vm.metadata):
        return paused_problem(vmi, name, since)
    if start_failures_of(vm) or (machine.downtime is not None and machine.downtime.crashes):
        return Problem(name, CRASH_LOOP, cause_text_of_vm(vm, vmi) if start_failures_of(vm) else ENDS_SOON, since)
    return None


def _starts(machine: Machine) -> bool:
    vm, vmi = machine.vm, machine.vmi
    is_starting = printable_status_of(vm) in STARTING or is_ready(vm)
    return is_starting or (vmi is not None and is_booting(vmi, member_unready_since(machine)))


def late_live_change(situation: Situation) -> Machine | None:
    """Return the first VM whose live change has exceeded the progress deadline, or None.

    Only one process has seen the beginning of the change. So the status of the same spec keeps the result for the next.
    """
    since, deadline = (situation.snapshot.live or LiveUpdates()).since, situation.intent.settings.deadline
    if not since:
        return None
    status = situation.snapshot.owner.status
    is_same = status is not None and status.observed_generation == situation.pool.generation
    stall = true_condition(status, STALLED) if is_same else None
    told = (stall.message or "") if stall is not None and stall.reason == DEADLINE else ""

    def is_late(machine: Machine) -> bool:
        is_told = told.startswith(beginning_of_late_change(machine.metadata.name))
        return is_told or is_overdue(since.get(machine.metadata.uid), situation.now, deadline)

    def is_changing(machine: Machine) -> bool:
        step = pending_step(situation, machine) if situation.may_update(machine) else None
        return step is not None and step.is_unfinished

    changing = filter(situation.is_above_partition, situation.members.where(is_changing))
    return min(filter(is_changing, filter(is_late, changing)), key=situation.snapshot.rank_of, default=None)


def _activity(situation: Situation, *, updates: bool) -> Activity:
    members, claims, everyone = situation.members, situation.claims, situation.snapshot.members
    is_short = len(members) < situation.target.wanted
    leaves = bool(claims.released or claims.young or _deleting(situation))
    lacks_finalizers = situation.intent.scale_in.preserve and any(lacking_finalizer(situation.snapshot, everyone))
    return Activity(
        heals=count_recovering(situation, read_records(situation)).number > 0,
        scales=is_short or leaves or _has_deletable_surplus(situation),
        updates=updates or lacks_finalizers,
        starts=bool(_unready(situation)),
        runs=members.some(lambda each: each.should_run),
    )


def _has_deletable_surplus(situation: Situation) -> bool:
    """Return True if the controller will delete VMs. A surplus stays if the scale-in policy or a mark keeps it (P8)."""
    intent = situation.intent
    if situation.surplus <= 0 or intent.scale_in.strategy is not Strategy.PROACTIVE:
        return False
    candidates, *_ = choose_leavers(situation)
    return candidates.some(lambda each: allows(intent.scale_in.selection, each.vm) and not is_protected(each.metadata))
