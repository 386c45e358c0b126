"""The replacement of finished VMs in one-shot pools (P25).

A VM with the run strategy Once has finished when its VMI has ended: KubeVirt does not start it again. If the pool has
too many VMs, a finished VM only leaves. Otherwise it is deleted with its disks, and a later reconciliation creates a
new VM with the same ordinal. A VM that fails soon after its start waits for the pauses of healing, so a broken template
makes few VMs. The record of such a failure is written before the delete, so a crash forgets none.
"""

from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from controller.kubevirt import vmis
from controller.kubevirt.delicate import reason_to_keep
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import has_finished
from controller.pool.healing.heal import HealingPlan, plan_healing
from controller.pool.healing.records import pause_end, read_records, record_patch
from controller.pool.leaving.claims import by_name
from controller.pool.leaving.deletes import delete_of, held_notices, replacement_of
from controller.pool.leaving.holds import replacement_obstacle
from controller.pool.members.machine import Machine
from controller.pool.members.situation import Situation
from controller.pool.rollout.successors import successor_of
from controller.replicas.progress import wake_at
from controller.runtime.actions import Cause, Delete, Notice, Plan, Stage, join, waiting

EARLY: Final = {"Failed": timedelta(minutes=10), "Succeeded": timedelta(minutes=1)}
"""A VM that ran for a shorter time failed early. The times are those of replica sets (R4a)."""


def plan_replacements(situation: Situation) -> HealingPlan:
    """Return the plan of healing, with the deletes of finished VMs."""
    return _with_finished(situation, plan_healing(situation))


def _with_finished(situation: Situation, healing: HealingPlan) -> HealingPlan:
    """Return the plan of healing, with the deletes of finished VMs. At most `burst` of them are deleted.

    A record of an early failure waits while healing writes its own records.
    """
    snapshot, now = situation.snapshot, situation.now
    finished = situation.members.where(lambda each: has_finished(each.vm, each.vmi)).without(healing.uids)
    if not situation.intent.replaces_finished or not finished:
        return healing
    surplus = situation.surplus
    records = read_records(situation)
    deletes: list[Delete] = []
    failed: dict[int, VirtualMachine] = {}
    held, times = [], []
    for machine in by_name(finished):
        if len(deletes) == snapshot.limits.burst:
            break
        vm, ordinal = machine.vm, snapshot.ordinal_of(machine)
        leaves = ordinal is None or len(deletes) < surplus
        obstacle = reason_to_keep(vm, machine.vmi, now) if leaves else _obstacle(situation, machine)
        record = records.get(ordinal) if ordinal is not None else None
        pause = pause_end(vm, record) or now
        if obstacle:
            held.append((vm, obstacle))
        elif leaves:
            # Without an owner's UID, the delete gives up after a change of the VM: a user may have started it again.
            deletes.append(replace(delete_of(vm, "it has finished, and the pool has too many VMs"), owner_uid=""))
        elif ordinal is not None and _failed_early(machine) and (pause > now or healing.plan.stages):
            times += [pause] if pause > now else []
        else:
            is_noted = record is not None and record.uid == vm.metadata.uid
            if ordinal is not None and not is_noted and _failed_early(machine):
                failed[ordinal] = vm
            why, successor = f"it has finished: {_ended(machine)}", successor_of(situation, vm)
            deletes.append(replacement_of(vm, why, cause=Cause.FINISHED, successor=successor))
    pattern = Notice(reason="HealingHeld", message="has finished, but is not replaced", once="finished held")
    stages = (
        *((Stage((record_patch(snapshot, records, failed),)),) if failed else ()),
        *((Stage(tuple(deletes), essential=False),) if deletes else ()),
    )
    waits = f"VMs that have finished and ended early wait for their replacement: {len(times)}" if times else ""
    own = Plan(stages=stages, notices=held_notices(pattern, held))
    plan = join([healing.plan, own, waiting(waits), wake_at(times, now)])
    return HealingPlan(plan, healing.uids | {each.uid for each in deletes}, healing.due)


def _obstacle(situation: Situation, machine: Machine) -> str:
    refused = situation.snapshot.refused.get(machine.metadata.name)
    if refused is not None:
        return f"the server refused its last change: {refused.message}"
    return replacement_obstacle(situation.snapshot, machine)


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
