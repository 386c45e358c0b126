"""The state of a set: one word, the first problem of a VMI, and the reason why the set is stalled (R11).

The rules for the words are those of pools, without `Healing`. The state depends only on the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from controller.apimachinery.conditions import Condition, with_timezone
from controller.kubevirt.annotations import is_protected
from controller.kubevirt.delicate import reason_to_spare_vmi
from controller.kubevirt.problems import (
    CRASH_LOOP,
    NOT_READY,
    UNDECODABLE,
    Problem,
    cause_of_vmi,
    is_booting,
    obstacle_of_vmi,
    one_line,
    problem_state_of_vmi,
    terminating_problem,
    text_of,
)
from controller.kubevirt.replicaset_types import ReplicaSetStatus
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_deleting, is_paused, is_ready, phase_of, terminating_since, unready_since
from controller.replicas.kstatus import (
    Health,
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
from controller.replicaset.back_off import NEVER, BackOff, trial_of
from controller.replicaset.intent import Intent
from controller.replicaset.rollout import parse_rollout, vmi_stuck_since
from controller.replicaset.snapshot import Snapshot
from controller.replicaset.template import Template, is_updated
from controller.replicaset.traits import VMIs, name_of
from controller.runtime.actions import Plan


def health_of(
    snapshot: Snapshot,
    intent: Intent,
    active: VMIs,
    back_off: BackOff,
    *,
    failure: Condition | None,
    replacing: Condition | None,
) -> Health:
    """Return the state of a valid set.

    `failure` is the new condition `ReplicaFailure`, and `replacing` is the new condition `ReplicaBackOff`. Each may be
    None.
    """
    old = snapshot.owner.status or ReplicaSetStatus()
    if snapshot.owner.spec.paused:
        return Health(Word.PAUSED)
    deadline = parse_deadline(snapshot.owner.metadata)
    is_replaced = replaced_by_rollout(snapshot, intent)
    waits = find_waits(snapshot, active, is_replaced, back_off, deadline)
    problem = waits.problems[0].text_after(texts_of(old.conditions)) if waits.problems else ""
    if failure is not None:
        problem = text_of(failure)
    stall = stall_of(waits, failure, old.conditions, now=snapshot.now, deadline=deadline)
    stall = stall or limit_stall(intent.wanted, len(active), snapshot.max_replicas)
    if stall is not None:
        return Health(Word.DEGRADED, text_of(failure) or stall.message, stall)
    if failure is not None or replacing is not None:
        return Health(Word.DEGRADED, problem or text_of(replacing))
    outdated = active.some(is_replaced)
    return Health(_word(snapshot, intent, active, outdated=outdated, has_problem=bool(problem)), problem)


def plan_progress(snapshot: Snapshot, intent: Intent, active: VMIs, back_off: BackOff) -> Plan:
    """Return a plan that asks for a reconciliation when the progress deadline of a VMI ends."""
    deadline = parse_deadline(snapshot.owner.metadata)
    is_replaced = replaced_by_rollout(snapshot, intent)
    starts = [failure.since for failure in back_off.failures if failure.failures >= 2]
    unready = active.where(lambda vmi: _is_unready(vmi) and not is_replaced(vmi) and not reason_to_spare_vmi(vmi))
    starts += [vmi_stuck_since(vmi, snapshot.now) for vmi in unready.examples()]
    terminating = snapshot.members.where(is_deleting).examples()
    return plan_deadline([*starts, *map(terminating_since, terminating)], snapshot.now, deadline)


def replaced_by_rollout(snapshot: Snapshot, intent: Intent) -> Callable[[VirtualMachineInstance], bool]:
    """Return a function that is true for the outdated VMIs that the rolling update will replace."""
    rollout = parse_rollout(snapshot, intent.wanted)
    if rollout is None:
        return lambda _: False
    template = intent.template
    return lambda vmi: not is_updated(vmi, template) and not is_protected(vmi.metadata)


def find_waits(
    snapshot: Snapshot,
    active: VMIs,
    is_replaced: Callable[[VirtualMachineInstance], bool],
    back_off: BackOff,
    deadline: timedelta,
) -> Waits:
    """Return the first problem of each group of VMIs, in the order of the names. VMIs that failed early come first, and
    VMIs that stay Terminating come last.

    `is_replaced` is true for the VMIs that the rolling update will replace. They have no deadline. Paused and
    unreadable VMIs have no deadline either, because only a user can help them.
    """

    def found() -> Iterator[tuple[Problem, datetime | None]]:
        for failure in back_off.failures:
            if failure.failures >= 2:
                yield Problem(failure.vmi.metadata.name, CRASH_LOOP, "", failure.since), failure.since
        for vmi in sorted(with_problems(snapshot, active).firsts(), key=name_of):
            problem = _problem_of(vmi, snapshot.now)
            yield problem, (None if is_replaced(vmi) or reason_to_spare_vmi(vmi) else problem.since)
        for vmi in sorted(stays_terminating(snapshot).firsts(), key=name_of):
            yield terminating_problem(vmi.metadata), terminating_since(vmi)

    return sort_waits(found(), snapshot.now, deadline)


def with_problems(snapshot: Snapshot, active: VMIs) -> VMIs:
    """Return the VMIs that are not ready and do not start in a normal way."""
    now, deadline = snapshot.now, parse_deadline(snapshot.owner.metadata)

    def has_problem(vmi: VirtualMachineInstance) -> bool:
        if is_ready(vmi):
            return False
        if reason_to_spare_vmi(vmi):
            return True
        if obstacle_of_vmi(vmi) is not None or trial_of(vmi).failures >= 2 or not is_booting(vmi, unready_since(vmi)):
            return True
        return is_overdue(vmi_stuck_since(vmi, now), now, deadline)

    return active.where(has_problem)


def stays_terminating(snapshot: Snapshot) -> VMIs:
    """Return the VMIs that have been terminating for longer than the progress deadline (P22)."""
    now, deadline = snapshot.now, parse_deadline(snapshot.owner.metadata)
    return snapshot.members.where(lambda vmi: is_overdue(terminating_since(vmi), now, deadline))


def revision_in_use(active: VMIs, template: Template) -> str:
    """Return the template hash of the oldest outdated VMI, or the current hash if no VMI is outdated."""
    outdated = active.where(lambda vmi: not is_updated(vmi, template))
    hashes = {template.hash_of(vmi) for vmi in outdated.examples()}
    if len(hashes) < 2:
        return min(hashes, default=template.hash)
    return min((with_timezone(vmi.metadata.creation_timestamp) or NEVER, template.hash_of(vmi)) for vmi in outdated)[1]


def _is_unready(vmi: VirtualMachineInstance) -> bool:
    return not is_ready(vmi)


def _problem_of(vmi: VirtualMachineInstance, now: datetime) -> Problem:
    """Return the problem of a VMI that does not start in a normal way."""
    name, since, obstacle = vmi.metadata.name, vmi_stuck_since(vmi, now), obstacle_of_vmi(vmi)
    if vmi.undecodable:
        return Problem(name, UNDECODABLE, one_line(vmi.undecodable), since)
    if is_paused(vmi):
        return Problem(name, "Paused", "", since)
    if obstacle is not None:
        return Problem(name, problem_state_of_vmi(vmi), text_of(obstacle), since)
    if trial_of(vmi).failures >= 2:
        return Problem(name, CRASH_LOOP, "", since)
    return Problem(name, phase_of(vmi) or "Pending", text_of(cause_of_vmi(vmi)) or NOT_READY, since)


def _word(snapshot: Snapshot, intent: Intent, active: VMIs, *, outdated: bool, has_problem: bool) -> Word:
    surplus = len(active) - intent.wanted
    if surplus < 0 or (surplus > 0 and active.some(lambda vmi: not is_protected(vmi.metadata))):
        return Word.SCALING
    if outdated:
        return Word.UPDATING
    if has_problem:
        return Word.DEGRADED
    if active.some(_is_unready):
        old = snapshot.owner.status or ReplicaSetStatus()
        previous = word_of(old.printable_status, old.conditions)
        return Word.UPDATING if previous == Word.UPDATING else Word.SCALING
    return Word.RUNNING if active else Word.STOPPED
