"""Claimed VMs: a user or a program has taken a VM from the pool, for example for a job (P33).

The annotation `CLAIMED_BY` has the name of the user. The VM stays a member, so it goes with the pool. But no rule
counts, updates, heals or deletes it, and the pool creates another VM in its place. If the claim ends, the VM is deleted
with its disks, also if the pool keeps disks: the next user must not find the data of the last. In a one-shot pool, a
claim also ends with the guest. A VM without the annotation is an ordinary member again.
"""

from typing import Final

from msgspec.structs import replace

from controller.kubevirt.annotations import CLAIMED_BY, MAX_CLAIMED
from controller.kubevirt.busy import claim_ends_at, is_claim_of_backup
from controller.kubevirt.delicate import delicate_reason
from controller.kubevirt.vms import has_finished, is_deleting
from controller.pool.leaving.deletes import delete_of, hold
from controller.pool.leaving.gates import Way, stop_of
from controller.pool.members.ledger import State, state_of
from controller.pool.members.machine import Machine, Machines, ends_of_work
from controller.pool.members.revisions import is_updated
from controller.pool.members.situation import Situation
from controller.replicas.conditions import machines_wait
from controller.replicas.notes import wake_at
from controller.runtime.actions import Cause, Notice, Plan, join, stage_of, waiting
from controller.runtime.members.groups import by_name
from controller.runtime.waits import Why
from informers.meta import annotations_of

CLAIM_HELD: Final = "ClaimHeld"


def plan_claimed(situation: Situation) -> Plan:
    """Plan the deletes of VMs whose claims have ended, at most `burst` of them, and say if claims leave VMs missing."""
    ended = [(each, why) for each in by_name(situation.claimed) if (why := _why_ended(situation, each))]
    stops = [(each, why, stop_of(situation, each, Way.SURPLUS).reason) for each, why in ended]
    gone = [(each.vm, why) for each, why, stop in stops if not stop]
    deletes = [delete_of(vm, why, if_unchanged=True, foreground=True, cause=Cause.FINISHED) for vm, why in gone]
    held = [(each.vm, stop) for each, _, stop in stops if stop]
    held += [(each.vm, why) for each in by_name(situation.claimed) if (why := _why_kept(each))]
    pattern = Notice(reason=CLAIM_HELD, message="is not claimed any more, but is not deleted", once="claim held")
    own = replace(hold("claimed", held, pattern), stages=stage_of(deletes[: situation.snapshot.limits.burst]))
    wake = wake_at(ends_of_work(situation.claimed, situation.now), situation.now)
    return join((own, wake, waiting(_missing(situation), Why.CHOICE)))


def _why_ended(situation: Situation, machine: Machine) -> str:
    """Return why the claim of a VM has ended, or "" while it lasts, is of a backup, or the VM is being deleted."""
    if is_deleting(machine.vm) or _why_kept(machine):
        return ""
    by, until = annotations_of(machine.metadata)[CLAIMED_BY], claim_ends_at(machine.metadata)
    if until is not None and until <= situation.now:
        return f"its claim by {by} has ended"
    has_ended = situation.intent.replaces_finished and has_finished(machine.vm, machine.vmi)
    return f"its guest has ended, which was claimed by {by}" if has_ended else ""


def _why_kept(machine: Machine) -> str:
    """Return why a VM stays whose claim is that of a backup, or ""."""
    if is_deleting(machine.vm) or not is_claim_of_backup(machine.metadata):
        return ""
    by = annotations_of(machine.metadata)[CLAIMED_BY]
    return f"its claim by {by} ended before the VM was created, as in a backup: release it, or release it with --keep"


def _missing(situation: Situation) -> str:
    """Return why the pool has fewer VMs for new claims than it wants, or ""."""
    intent, claimed, limit = situation.intent, len(situation.claimed), situation.snapshot.limits.max_replicas
    missing = intent.replicas - situation.target.replicas
    if missing <= 0 or intent.replicas > limit > 0:
        return ""
    why = f"{MAX_CLAIMED} is {intent.max_claimed}" if claimed > intent.max_claimed else f"--max-replicas is {limit}"
    return f"{claimed} virtual machines are claimed, so {machines_wait(missing)} for the end of a claim, because {why}"


def free_members(situation: Situation) -> Machines:
    """Return the VMs that may be claimed: they are available with the current template, and nothing says stop."""

    def is_free(machine: Machine) -> bool:
        is_available = state_of(machine, situation.now, situation.intent.min_ready_s)[0] is State.AVAILABLE
        is_current = is_updated(situation.revisions, machine)
        return is_available and is_current and not delicate_reason(machine.vm, machine.vmi, situation.now)

    return situation.members.where(is_free)
