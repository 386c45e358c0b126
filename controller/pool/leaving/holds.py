"""The reasons why the controller must not delete a VM now, although healing or an update asks for it (P20, P21)."""

from collections.abc import Collection
from typing import Final

from controller.kubevirt.annotations import MOST_DISRUPTIVE, RECREATE, is_protected
from controller.kubevirt.delicate import PROTECTED, reason_to_keep
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import printable_status_of, starts_after_creation
from controller.pool.members.machine import Machine
from controller.pool.members.situation import Situation
from controller.pool.members.snapshot import Snapshot
from controller.pool.spec.policies import Strategy

DISK_STATES: Final = frozenset({"DataVolumeError", "ErrorPvcNotFound"})
"""The values of `printableStatus` that report a failure of the VM's disk."""

INCURABLE_STATES: Final = frozenset({"ErrorUnschedulable", "ErrImagePull", "ImagePullBackOff"})
"""The values of `printableStatus` that report a failure that a new disk does not cure."""


def replacement_obstacle(snapshot: Snapshot, machine: Machine) -> str:
    """Return the reason why the VM must not be deleted to be replaced, or ""."""
    return _limit_obstacle(snapshot) or reason_to_keep(machine.vm, machine.vmi, snapshot.now)


def _limit_obstacle(snapshot: Snapshot) -> str:
    limit = snapshot.limits.max_replicas
    if 0 < limit < len(snapshot.members):
        return f"the pool has more virtual machines than --max-replicas ({limit}) allows, so none would come back"
    return ""


def healing_obstacle(situation: Situation, machine: Machine, own_disks: Collection[str]) -> str:
    """Return the reason why a failing VM must not be healed now, or "". `own_disks` are the disks that are made for the
    VM alone.
    """
    state, name, preserve = printable_status_of(machine.vm), machine.metadata.name, situation.intent.scale_in.preserve
    if preserve and state in DISK_STATES:
        return (
            f"its disk fails ({state}), and statePreservation keeps the disk, so a new virtual machine would use the "
            f"same disk; repair or delete the disk, or delete {name}"
        )
    if own_disks and not preserve and state in INCURABLE_STATES:
        return (
            f"{state} is not cured by new disks, and its disks would be deleted ({_list(own_disks)}); "
            f"correct the cause, or delete {name}"
        )
    refused = situation.snapshot.refused.get(name)
    if refused is not None:
        return f"the server refused its last change: {refused.message}"
    return replacement_obstacle(situation.snapshot, machine)


def recreation_veto(situation: Situation, vm: VirtualMachine, disks: Collection[str]) -> str:
    """Return the reason why an update must not delete the VM with its disks unless its user acts, or "" (P21)."""
    if situation.intent.update.strategy is not Strategy.PROACTIVE:
        return "it needs new disks, and spec.updateStrategy deletes no virtual machine: delete it"
    if not starts_after_creation(vm):
        return "it needs new disks, and its run strategy does not start a new virtual machine: delete it"
    why = forbids_recreation(situation)
    if not why:
        return PROTECTED if is_protected(vm.metadata) else _limit_obstacle(situation.snapshot)
    return (
        f"its disks would be deleted ({_list(disks)}), and {why}; "
        f"annotate the pool with {MOST_DISRUPTIVE}={RECREATE} to allow it"
    )


def forbids_recreation(situation: Situation) -> str:
    intent = situation.intent
    if intent.most_disruptive == RECREATE:
        return ""
    if intent.most_disruptive is not None:
        return f"the annotation {MOST_DISRUPTIVE} forbids it"
    if situation.target.rejected is not None:
        return "a return to an earlier revision deletes no disk by itself"
    return "statePreservation keeps the disks of this pool" if intent.scale_in.preserve else ""


def _list(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "none"
