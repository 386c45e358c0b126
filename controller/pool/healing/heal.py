"""Healing (P15), and the replacement of finished VMs in one-shot pools (P25).

Healing a VM takes two reconciliations. The first reconciliation announces the deletion in the pool's annotation
`vmherd.dev/healed`. A few seconds later, another reconciliation deletes the VM, if the VM still fails. If the
controller crashes, the next leader reads the healings from the annotation. A later reconciliation creates a new VM with
the same ordinal.

If `statePreservation` is Disabled, the VM is deleted in the foreground together with its disks. If `statePreservation`
is Offline or Online, the disks are kept, and the new VM uses them again. Some failing VMs are not healed (see
`leaving.gates`): for example a protected VM, a VM during a snapshot, or a VM whose failure a new disk does not cure. An
Event shows the reason. A VM is deleted only if the server would accept its successor (P20).

A VM with the run strategy Once has finished when its VMI has ended: KubeVirt does not start it again. If the pool has
too many VMs, a finished VM only leaves. Otherwise it is deleted with its disks, and a later reconciliation creates a
new VM with the same ordinal. A VM that fails soon after its start waits for the pauses of healing, so a broken template
makes few VMs. The record of such a failure is written before the delete, so a crash forgets none.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.conditions import time_text
from controller.kubevirt import vmis
from controller.kubevirt.annotations import MAX_UNHEALTHY
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import has_finished
from controller.pool.healing.failing import (
    ANNOUNCEMENT,
    FailingVM,
    count_recovering,
    failing_vms,
    pause_end,
    read_records,
    record_healings,
)
from controller.pool.leaving.deletes import delete_of, hold, replacement_of
from controller.pool.leaving.disks import add_finalizers, is_safe_to_delete
from controller.pool.leaving.gates import Way, stop_of
from controller.pool.members.ledger import open_period
from controller.pool.members.machine import Machine, guest_of
from controller.pool.members.notes import MAX_ENTRIES, Record
from controller.pool.members.situation import Situation
from controller.pool.rollout.successors import successor_of
from controller.replicas.conditions import counted, machines_wait
from controller.replicas.draining import HEALING, is_draining, must_drain, whole
from controller.replicas.notes import wake_at
from controller.runtime.actions import Cause, Delete, Notice, Plan, join, stage_of, waiting
from controller.runtime.members.groups import by_name
from controller.runtime.waits import Why

HEALING_HELD: Final = "HealingHeld"


class HealingPlan(Struct, frozen=True):
    """The plan of healing. `uids` are the UIDs of the VMs that this or a later reconciliation deletes, and `due` are
    those of the VMs that wait only for their turn.
    """

    plan: Plan = Plan()
    uids: frozenset[str] = frozenset()
    due: frozenset[str] = frozenset()


def plan_healing(situation: Situation) -> HealingPlan:
    """Plan the deletion of as many failing VMs as the limits allow, and ask for a reconciliation at the next change: a
    VM fails or is due for replacement, or a recreated VM becomes available or exceeds `START_TIMEOUT`.

    At most `maxUnavailable` healed VMs may be unavailable at the same time. Healing does not wait for VMs that a
    rollout restarts. A failing VM is already unavailable, so healing makes no further VM unavailable. The rollout
    counts healed VMs as unavailable.
    """
    snapshot, intent, members = situation.snapshot, situation.intent, situation.members
    if not intent.heals:
        return HealingPlan()
    records = read_records(situation)
    failing = failing_vms(situation, records)
    certain = [each for each in failing if each.certain_at <= snapshot.now]
    recovering = count_recovering(situation, records, {each.machine.metadata.uid for each in certain})
    changes_at = [at for each in failing for at in (each.certain_at, each.due) if at > snapshot.now]
    curable, obstacles = _split_due(situation, [each for each in failing if each.due <= snapshot.now])
    parts = [obstacles, wake_at([*changes_at, recovering.until], snapshot.now)]
    limit = intent.max_unhealthy.of(len(members) + recovering.absent)
    others = recovering.number + len(situation.known_lost)
    if (unhealthy := len(certain) + others) > limit:
        return HealingPlan(join([*parts, *([_too_many(situation, unhealthy, limit)] if curable else [])]))
    max_healed = min(situation.most_unavailable, MAX_ENTRIES)
    slots = max(min(max_healed - recovering.number, snapshot.limits.burst), 0)
    chosen = curable[:slots]
    left = len(curable) - len(chosen)
    held = f"healing: {machines_wait(left)} until others are available" if left else ""
    parts += [_heal(situation, chosen, records), waiting(held, Why.OTHERS)]
    parts += [_wait_for_next(situation, failing, limit - others)] if len(curable) < slots else []
    uids, due = (frozenset(each.machine.metadata.uid for each in vms) for vms in (chosen, curable))
    return HealingPlan(join(parts), uids, due)


def _wait_for_next(situation: Situation, failing: list[FailingVM], most: int) -> Plan:
    """Return a plan that says which VM is healed next, and when. VMs that may not be deleted now are left out. If more
    than `most` VMs fail by then, none is healed.
    """
    later = sorted((each for each in failing if each.due > situation.now), key=lambda each: (each.due, each.ordinal))
    first = next((each for each in later if not stop_of(situation, each.machine, Way.HEALING).reason), None)
    if first is None or sum(each.certain_at <= first.due for each in failing) > most:
        return Plan()
    name = first.machine.metadata.name
    before = f" ({counted(first.healed, 'healing', 'healings')} before)" if first.healed else ""
    more = f", and {len(later) - 1} more later" if len(later) > 1 else ""
    text = f"healing: {name} fails, and is replaced at {time_text(first.due)}{before}{more}"
    return waiting(text, names=(name,), until=first.due)


def _split_due(situation: Situation, due: list[FailingVM]) -> tuple[list[FailingVM], Plan]:
    """Return the VMs that may be deleted now, and a plan with the Events that say why the other VMs must wait.

    VMs that drain come first, then VMs whose deletion was announced, then VMs with fewer healings.
    """

    def rank(vm: FailingVM) -> tuple[bool, bool, int, datetime, int]:
        return not is_draining(vm.machine.metadata), vm.announced is None, vm.healed, vm.due, vm.ordinal

    stops = [(each, stop_of(situation, each.machine, Way.HEALING).reason) for each in due]
    curable = sorted((each for each, reason in stops if not reason), key=rank)
    held = [(each.machine.vm, reason) for each, reason in stops if reason]
    pattern = Notice(reason=HEALING_HELD, message="is not replaced", once="healing held")
    return curable, hold("healing", held, pattern)


def _heal(situation: Situation, chosen: list[FailingVM], records: Mapping[int, Record]) -> Plan:
    """Plan the announcements and the deletions of the chosen VMs.

    If the controller crashes after an announcement, the next leader deletes the same VMs, and does not count the
    healing again. If the pool keeps disks, a VM without the pool finalizer gets the finalizer before the VM is deleted
    (P10). A VM that must drain is announced when it has drained (P26).
    """
    snapshot, preserve = situation.snapshot, situation.intent.scale_in.preserve
    drain = situation.intent.settings.drain
    unsafe = [each.machine.vm for each in chosen if preserve and not is_safe_to_delete(snapshot, each.machine.vm)]
    draining = {each.ordinal for each in chosen if must_drain(drain, guest_of(each.machine), HEALING, snapshot.now)}
    new = [each for each in chosen if each.announced is None and each.ordinal not in draining]
    deletes = tuple(
        replacement_of(
            each.machine.vm,
            f"healing: {each.why}",
            cause=Cause.HEALING,
            successor=successor_of(situation, each.machine.vm),
            keep_disks=preserve,
        )
        for each in chosen
        if (each.ordinal in draining or (each.announced is not None and each.announced <= snapshot.now))
        and each.machine.vm not in unsafe
    )
    records_first = record_healings(snapshot, records, {each.ordinal: each.machine.vm for each in new})
    stages = (*add_finalizers(unsafe), *records_first, *stage_of(deletes))
    times = [each.announced for each in chosen if each.announced is not None and each.announced > snapshot.now]
    times += [whole(snapshot.now) + ANNOUNCEMENT] if new else []
    soon = len(chosen) - len(deletes)
    held = f"healing: failed virtual machines are replaced in a few seconds ({soon})" if soon else ""
    return join([Plan(stages=stages), waiting(held), wake_at(times, snapshot.now)])


def _too_many(situation: Situation, failing: int, limit: int) -> Plan:
    """Return a plan that waits. Its Event is sent once for one series of failures. Another series begins if the spec
    changes, or if the VM with the longest unready period recovers.
    """
    periods = [period for each in situation.members if (period := open_period(each)) is not None]
    first = min(((each.since, each.uid) for each in periods), default="")
    text = f"{failing} virtual machines fail at the same time, the limit is {limit}"
    notice = Notice(
        reason=HEALING_HELD,
        message=f"{text}; no virtual machine is replaced until fewer fail",
        once=f"healing held {situation.pool.generation} {first}",
    )
    remedy = f"kubectl annotate --overwrite {{this}} {MAX_UNHEALTHY}=100%"
    held = waiting(f"healing is blocked: {text} ({MAX_UNHEALTHY})", Why.FEWER, remedy=remedy)
    return replace(held, notices=(notice,))


EARLY: Final = {"Failed": timedelta(minutes=10), "Succeeded": timedelta(minutes=1)}
"""A VM that ran for a shorter time failed early. The times are those of replica sets (R4a)."""


def plan_replacements(situation: Situation) -> HealingPlan:
    """Return the plan of healing, with the deletes of at most `burst` finished VMs. A record of an early failure waits
    while healing writes its own records.
    """
    healing, snapshot, now = plan_healing(situation), situation.snapshot, situation.now
    finished = situation.members.where(lambda each: has_finished(each.vm, each.vmi)).without(healing.uids)
    if not situation.intent.replaces_finished or not finished:
        return healing
    surplus, records = situation.surplus, read_records(situation)
    deletes: list[Delete] = []
    failed: dict[int, VirtualMachine] = {}
    held, times = [], []
    for machine in by_name(finished):
        if len(deletes) == snapshot.limits.burst:
            break
        vm, ordinal = machine.vm, snapshot.ordinal_of(machine)
        leaves = ordinal is None or len(deletes) < surplus
        obstacle = stop_of(situation, machine, Way.SURPLUS if leaves else Way.FINISHED).reason
        record = records.get(ordinal) if ordinal is not None else None
        pause = pause_end(vm, record) or now
        if obstacle:
            held.append((vm, obstacle))
        elif leaves:
            deletes.append(delete_of(vm, "it has finished, and the pool has too many VMs", if_unchanged=True))
        elif ordinal is not None and _failed_early(machine) and (pause > now or healing.plan.stages):
            times += [pause] if pause > now else []
        else:
            is_noted = record is not None and record.uid == vm.metadata.uid
            if ordinal is not None and not is_noted and _failed_early(machine):
                failed[ordinal] = vm
            why, successor = f"it has finished: {_ended(machine)}", successor_of(situation, vm)
            deletes.append(replacement_of(vm, why, cause=Cause.FINISHED, successor=successor))
    pattern = Notice(reason=HEALING_HELD, message="has finished, but is not replaced", once="finished held")
    stages = (*record_healings(snapshot, records, failed), *stage_of(deletes))
    waits = f"VMs that have finished and ended early wait for their replacement: {len(times)}" if times else ""
    own = replace(hold("finished", held, pattern), stages=stages)
    plan = join([healing.plan, own, waiting(waits), wake_at(times, now)])
    return HealingPlan(plan, healing.uids | {each.uid for each in deletes}, healing.due)


def _ended(machine: Machine) -> str:
    return vmis.phase_of(machine.vmi) if machine.vmi is not None else ""


def _failed_early(machine: Machine) -> bool:
    """Return True if the guest ended too soon, or never ran."""
    assert machine.vmi is not None, "a finished VM has a VMI"
    phase = _ended(machine)
    started, ended = vmis.entered(machine.vmi, "Running"), vmis.entered(machine.vmi, phase)
    if ended is None:
        return phase == "Failed"  # Without times, only the phase tells.
    return started is None or ended - started < EARLY[phase]
