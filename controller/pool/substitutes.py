"""Substitutes: additional VMs in place of lost VMs (P28). `members.ledger` says which VMs are lost.

A substitute has a free ordinal and its own disks, so it shares nothing with the lost VM. The lost VM is never deleted,
and its node is never fenced. The number of wanted VMs grows by the substitutes, so the scale-out creates them. An
annotation marks them. If too many VMs exist when a lost VM is back, the substitutes leave first.
"""

from typing import Final

from msgspec.structs import replace

from controller.kubevirt.annotations import MAX_UNHEALTHY, SUBSTITUTE, is_marked
from controller.kubevirt.problems import Problem, lost_node_problem
from controller.kubevirt.resources import VMS
from controller.pool.members.ledger import LONG_AGO, is_known_loss, lost_at, lost_members, lost_since, outage_of
from controller.pool.members.machine import Machine, Machines
from controller.pool.members.situation import Situation
from controller.pool.members.unready_periods import STEADY
from controller.replicas.conditions import machines_wait
from controller.replicas.notes import MAX_NOTICES, plan_note, wake_at
from controller.runtime.actions import Notice, Plan, join, waiting
from controller.runtime.members.groups import by_name

SUBSTITUTES_HELD: Final = "SubstitutesHeld"
WAITS_FOR_POD: Final = "KubeVirt starts it again when the node is back or its Pod is gone"


def plan_lost(situation: Situation) -> Plan:
    """Return a plan that writes nothing. Its Events name the lost VMs, and say why no substitute is created."""
    intent, now, after = situation.intent, situation.now, situation.intent.substitute_lost_after
    if after is None or not situation.lost:
        return Plan()
    known, target = situation.known_lost, situation.target
    lost = by_name(lost_members(situation.members))
    times = [(at, each) for each in lost if (at := lost_at(each, after)) is not None]
    due = [each for at, each in times if at <= now and is_known_loss(each, after, now)]
    named = ((each, lost_problem(situation, each)) for each in due[:MAX_NOTICES])
    notices = [_notice_of(each, problem) for each, problem in named if problem is not None]
    limit = intent.max_unhealthy.of(target.regular)
    held = []
    if due and len(known) > limit:
        held.append(f"{len(known)} virtual machines are lost at the same time, the limit is {limit} ({MAX_UNHEALTHY})")
        message = f"{held[0]}; no substitute is created until fewer are lost"
        once = f"{situation.pool.generation} {due[0].metadata.uid}"
        notices.append(Notice(reason=SUBSTITUTES_HELD, message=message, once=once))
    elif len(due) > target.substitutes:
        most, limits = situation.most_unavailable, situation.snapshot.limits
        why = f"maxUnavailable is {most}" if target.substitutes == most else f"--max-replicas is {limits.max_replicas}"
        held.append(f"{machines_wait(len(due) - target.substitutes, 'lost ')} for a substitute, because {why}")
    extra = len(situation.members) - target.wanted
    if extra > 0 and situation.surplus <= 0:
        held.append(f"{machines_wait(extra, 'surplus ')}: no lost virtual machine is deleted")
    waits = wake_at((at for at, _ in times if at > now), now)
    return join((replace(waits, notices=tuple(notices)), waiting(f"lost: {'; '.join(held)}" if held else "")))


def is_substitute(machine: Machine) -> bool:
    return is_marked(machine.metadata, SUBSTITUTE)


def plan_marks(situation: Situation) -> Plan:
    """Plan to remove the marks of substitutes that stay for good: no VM is lost, and no VM is surplus."""
    marked = situation.staying.where(is_substitute)
    if not marked or situation.lost or len(situation.members) > situation.target.wanted:
        return Plan()
    return join(plan_note(VMS, each.metadata, {SUBSTITUTE: None}, "it stays for good") for each in marked)


def choose_leavers(situation: Situation) -> tuple[Machines, int, Plan]:
    """Return the VMs among which a scale-in chooses, how many of them leave, and a plan that says who waits.

    If the substitutes are enough, only substitutes leave. They wait until so many other VMs are available that the pool
    does not miss them.
    """
    staying, surplus = situation.staying, situation.surplus
    substitutes = staying.where(is_substitute)
    if surplus <= 0 or surplus > len(substitutes):
        return staying, surplus, Plan()
    others = staying.where(lambda each: not is_substitute(each))
    seconds = max(situation.intent.min_ready_s, int(STEADY.total_seconds()))
    found = outage_of(others, situation.now, seconds)
    unproven = min(found.number, surplus)
    if not unproven:
        return substitutes, surplus, Plan()
    held = f"{machines_wait(unproven, 'substitute ')} until the others have been ready for {seconds} s"
    waits = wake_at([found.ends_at], situation.now)
    return substitutes, surplus - unproven, join((waits, waiting(held)))


def lost_problem(situation: Situation, machine: Machine) -> Problem | None:
    """Return the problem of a lost VM, or None. Without substitutes, a VM is lost only if its node is known to be
    silent, and it is only named.
    """
    after = situation.intent.substitute_lost_after or LONG_AGO
    if machine.vmi is None or not is_known_loss(machine, after, situation.now):
        return None
    return lost_node_problem(machine.vmi, machine.metadata.name, lost_since(machine), WAITS_FOR_POD)


def first_lost_problem(situation: Situation) -> str:
    """Return the problem of the first lost VM, or ""."""
    problems = (lost_problem(situation, each) for each in situation.known_lost)
    return min((each.text for each in problems if each is not None), default="")


def _notice_of(machine: Machine, problem: Problem) -> Notice:
    message = f"virtual machine {problem.name} is lost: {problem.detail}"
    return Notice(reason="VMLost", message=message, once=machine.vmi.metadata.uid if machine.vmi is not None else "")
