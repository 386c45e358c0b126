"""The state of a set: one word, the first problem of a VMI, and the reason why the set is stalled (R11).

The rules for the words are those of pools, without `Healing`. The state depends only on the snapshot.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from controller.apimachinery.conditions import Condition
from controller.kubevirt import problems, vmis
from controller.kubevirt.annotations import is_protected
from controller.kubevirt.delicate import paused_or_unreadable
from controller.kubevirt.problems import Problem
from controller.kubevirt.vm_types import ControllerRevision
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicas import kstatus
from controller.replicas.revisions import hash_of_set_revision
from controller.replicaset.back_off import trial_of
from controller.replicaset.rollout import vmi_stuck_since
from controller.replicaset.situation import Situation
from controller.replicaset.template import Template, is_updated
from controller.replicaset.traits import VMIs
from controller.runtime.actions import Plan, join
from controller.runtime.members.groups import by_name

WAITS_FOR_POD: Final = "the set replaces it when Kubernetes deletes its Pod"


def health_of(
    situation: Situation, failure: Condition | None, replacing: Condition | None, waits: kstatus.Waits
) -> kstatus.Health:
    """`failure` and `replacing` are the new conditions `ReplicaFailure` and `ReplicaBackOff`, or None."""
    snapshot, deadline = situation.snapshot, situation.intent.settings.deadline
    troubles, activity = find_troubles(situation), _activity(situation)
    asides = (kstatus.held_by_others(snapshot.members),)
    health = kstatus.health_of(snapshot, troubles, activity, waits, deadline=deadline, failure=failure, asides=asides)
    if failure is not None:
        return replace(health, problem=problems.text_of(failure))
    if replacing is not None and health.stall is None:
        return kstatus.Health(kstatus.Word.DEGRADED, health.problem or problems.text_of(replacing))
    return health


def plan_progress(situation: Situation) -> Plan:
    snapshot = situation.snapshot
    deadline = situation.intent.settings.deadline
    is_replaced = replaced_by_rollout(situation)
    starts = [failure.since for failure in situation.back_off.failures if failure.failures >= 2]
    unready = situation.active.where(
        lambda vmi: not vmis.is_ready(vmi) and not is_replaced(vmi) and not paused_or_unreadable(vmi)
    )
    starts += [vmi_stuck_since(vmi, snapshot.now) for vmi in unready.traits()]
    terminating = [vmis.terminating_since(vmi) for vmi in snapshot.members.where(vmis.is_deleting).traits()]
    starting = [vmi_stuck_since(vmi, snapshot.now) for vmi in unready.traits() if not _fails(vmi)]
    stalls = kstatus.plan_deadline([*starts, *terminating], snapshot.now, deadline)
    return join((stalls, kstatus.plan_telling([*starting, *terminating], snapshot.now, deadline)))


def replaced_by_rollout(situation: Situation) -> Callable[[VirtualMachineInstance], bool]:
    if situation.rollout is None:
        return lambda _: False
    template = situation.template
    return lambda vmi: not is_updated(vmi, template) and not is_protected(vmi.metadata)


def find_troubles(situation: Situation) -> list[kstatus.Trouble]:
    """Return the first problem of each group of VMIs by name: early failures first, long Terminating ones last.

    VMIs that the rolling update replaces, and paused or unreadable ones, have no deadline.
    """
    snapshot, is_replaced = situation.snapshot, replaced_by_rollout(situation)
    now, deadline = snapshot.now, situation.intent.settings.deadline
    failed = [each for each in situation.back_off.failures if each.failures >= 2]
    loops = (
        Problem(each.vmi.metadata.name, problems.CRASH_LOOP, f"{each.failures} failures in a row", each.since)
        for each in failed
    )
    troubles: list[kstatus.Trouble] = [(each, each.since) for each in loops]
    shown = snapshot.members.where(lambda vmi: vmis.is_active(vmi) and _is_told(vmi, now, deadline))
    for vmi in by_name(shown.firsts()):
        problem = problem_of(vmi, now, deadline)
        troubles.append((problem, None if is_replaced(vmi) or paused_or_unreadable(vmi) else problem.since))
    return troubles + kstatus.terminating_troubles(snapshot.members, now, deadline)


def _is_told(vmi: VirtualMachineInstance, now: datetime, deadline: timedelta) -> bool:
    if vmis.is_ready(vmi):
        return False
    return _fails(vmi) or kstatus.is_overdue(vmi_stuck_since(vmi, now), now, kstatus.told_after(deadline))


def _fails(vmi: VirtualMachineInstance) -> bool:
    if paused_or_unreadable(vmi) or vmis.is_out_of_reach(vmi) or problems.obstacle_of_vmi(vmi) is not None:
        return True
    return trial_of(vmi).failures >= 2 or not problems.is_booting(vmi, vmis.unready_since(vmi))


def revision_in_use(active: VMIs, template: Template, revisions: Iterable[ControllerRevision]) -> str:
    """Return the hash of the outdated template with VMIs that was rolled out first, by default the current one."""
    numbers = {hash_of_set_revision(each.metadata): each.revision for each in revisions}
    outdated = {template.hash_of(vmi) for vmi in active.traits()} - {template.hash}
    return min(outdated, key=lambda hashed: (numbers.get(hashed, 0), hashed), default=template.hash)


def problem_of(vmi: VirtualMachineInstance, now: datetime, deadline: timedelta) -> Problem:
    name, since, obstacle = vmi.metadata.name, vmi_stuck_since(vmi, now), problems.obstacle_of_vmi(vmi)
    if vmi.undecodable:
        return Problem(name, problems.UNDECODABLE, problems.one_line(vmi.undecodable), since)
    if vmis.is_paused(vmi):
        return problems.paused_problem(vmi, name, since)
    if vmis.is_out_of_reach(vmi):
        return problems.lost_node_problem(vmi, name, vmis.unready_since(vmi), WAITS_FOR_POD)
    if obstacle is not None:
        return Problem(name, problems.problem_state_of_vmi(vmi), problems.text_of(obstacle), since)
    if trial_of(vmi).failures >= 2:
        return Problem(name, problems.CRASH_LOOP, f"{trial_of(vmi).failures} failures in a row", since)
    is_slow = not _fails(vmi) and not kstatus.is_overdue(since, now, deadline)
    why = problems.text_of(problems.cause_of_vmi(vmi)) or problems.NOT_READY
    return Problem(name, vmis.phase_of(vmi) or "Pending", why, since, is_slow)


def _activity(situation: Situation) -> kstatus.Activity:
    active, claims = situation.active, situation.claims
    is_claiming = bool(claims.adopted or claims.releases.now or claims.releases.held)
    has_surplus = situation.missing < 0 and active.some(lambda vmi: not is_protected(vmi.metadata))
    return kstatus.Activity(
        scales=not situation.has_regular or has_surplus or is_claiming,
        updates=active.some(replaced_by_rollout(situation)),
        starts=situation.snapshot.members.some(lambda vmi: vmis.is_active(vmi) and not vmis.is_ready(vmi)),
        runs=bool(active),
    )
