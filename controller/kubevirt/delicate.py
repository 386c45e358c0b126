"""Moments in which a VM must not be restarted, deleted or healed, because the VM or its disks could be damaged.

KubeVirt shows such a moment in the status of the VM or of its VMI. A paused VM is delicate: a user inspects it, or its
storage has no space, and its memory would be lost. Only a standby that vmherd has paused is not (P32). A busy VM is
delicate, because its work would be lost (`busy`). A VM or VMI with an unreadable field counts as delicate, too, because
the cache has only its metadata. Two states are not such moments:

- A VirtualMachineExport reads the disks of a stopped VM. Even if the VM is deleted, the finalizer
  `kubernetes.io/pvc-protection` keeps the disks until the end of the export.
- The VM's field `status.volumeUpdateState` keeps its value after a successful volume migration. So this field alone
  does not show whether a volume migration is running. The condition `VolumesChange` and the VMI's field
  `status.migratedVolumes` show this. KubeVirt clears this condition and this field at the end of the migration.
"""

from datetime import datetime
from typing import Final

from controller.apimachinery.conditions import find_true
from controller.kubevirt import vmis
from controller.kubevirt.annotations import PROTECT, is_protected, is_to_be_paused
from controller.kubevirt.busy import busy_reason, claim_reason
from controller.kubevirt.vm_types import MANUAL_RECOVERY_REQUIRED, VOLUMES_CHANGE, VirtualMachine
from controller.kubevirt.vmi_types import CPU_CHANGE, MEMORY_CHANGE, PAUSED, VirtualMachineInstance
from controller.kubevirt.vms import has_finished, printable_status_of

UNREADABLE: Final = "the virtual machine or its instance has a field that cannot be decoded"
"""Why an undecodable VM or VMI is left alone: it may contain another reason, or the names of disks."""

PROTECTED: Final = f"it is protected by {PROTECT}"

IS_PAUSED: Final = "it is paused"


def reason_to_keep(vm: VirtualMachine, vmi: VirtualMachineInstance | None, now: datetime) -> str:
    """Return the reason why vmherd must not delete the VM now, or "" (P20). `vmi` is the VM's VMI, or None."""
    return PROTECTED if is_protected(vm.metadata) else delicate_reason(vm, vmi, now)


def reason_to_keep_vmi(vmi: VirtualMachineInstance, now: datetime) -> str:
    """Return the reason why vmherd must not delete the VMI of a set now, or "" (P20)."""
    return PROTECTED if is_protected(vmi.metadata) else reason_to_spare_vmi(vmi, now)


def reason_to_spare_vmi(vmi: VirtualMachineInstance, now: datetime) -> str:
    """Return why vmherd must not delete a set's VMI now, or "": not for a live migration, nor a finished VMI."""
    return paused_or_unreadable(vmi) or ("" if vmis.is_final(vmi) else busy_reason(vmi, now))


def paused_or_unreadable(vmi: VirtualMachineInstance) -> str:
    """Return the state in which only a user can help the VMI of a set, or ""."""
    if vmi.undecodable:
        return UNREADABLE
    return IS_PAUSED if vmis.is_paused(vmi) and not vmis.is_final(vmi) else ""


def delicate_reason(
    vm: VirtualMachine, vmi: VirtualMachineInstance | None, now: datetime, *, may_interrupt_resizing: bool = False
) -> str:
    """Return the reason why the VM, with its VMI or None, must not be restarted, deleted or healed now, or "".

    If `may_interrupt_resizing`, a hot-plug of CPU or memory is no reason, because a restart gives the VM the new size
    too. The text stays the same while the reason lasts, so a caller can report it once.
    """
    of_vm = _reason_of_vm(vm) or _busy_reason_of_vm(vm, vmi, now)
    if of_vm or vmi is None or vmis.is_final(vmi):
        return of_vm
    of_vmi = delicate_reason_of_vmi(vmi, may_interrupt_resizing, may_be_paused=is_to_be_paused(vm.metadata))
    return of_vmi or busy_reason(vmi, now)


def _busy_reason_of_vm(vm: VirtualMachine, vmi: VirtualMachineInstance | None, now: datetime) -> str:
    return "" if has_finished(vm, vmi) else claim_reason(vm.metadata, now) or busy_reason(vm, now)


def is_busy(vm: VirtualMachine, vmi: VirtualMachineInstance | None, now: datetime) -> bool:
    """Return True if a mark of the VM or of its VMI counts now (P24). If the guest has ended, it does no work."""
    return bool(_busy_reason_of_vm(vm, vmi, now)) or (vmi is not None and is_busy_vmi(vmi, now))


def is_busy_vmi(vmi: VirtualMachineInstance, now: datetime) -> bool:
    return not vmis.is_final(vmi) and bool(busy_reason(vmi, now))


def needs_manual_recovery(vm: VirtualMachine) -> bool:
    """Return True if a volume migration was interrupted: KubeVirt then starts the VM only after a user's correction."""
    return vm.status is not None and find_true(vm.status.conditions, MANUAL_RECOVERY_REQUIRED) is not None


def _reason_of_vm(vm: VirtualMachine) -> str:
    if vm.undecodable:
        return UNREADABLE
    status = vm.status
    if status is None:
        return ""
    if status.snapshot_in_progress is not None:
        return f"snapshot {status.snapshot_in_progress} is in progress"
    if status.restore_in_progress is not None:
        return f"restore {status.restore_in_progress} is in progress"
    if printable_status_of(vm) == PAUSED and not is_to_be_paused(vm.metadata):
        return IS_PAUSED
    if needs_manual_recovery(vm):
        return "a volume migration was interrupted, and the virtual machine needs manual recovery"
    return "a volume migration is in progress" if find_true(status.conditions, VOLUMES_CHANGE) else ""


def delicate_reason_of_vmi(
    vmi: VirtualMachineInstance, may_interrupt_resizing: bool = False, *, may_be_paused: bool = False
) -> str:
    """Return why the VMI allows no restart, deletion or healing now, or "". `delicate_reason` checks the VM too."""
    if vmi.undecodable:
        return UNREADABLE
    status = vmi.status
    if status is None or vmis.is_final(vmi):
        return ""
    if status.migrated_volumes or find_true(status.conditions, VOLUMES_CHANGE):
        return "a volume migration is in progress"
    if vmis.is_paused(vmi) and not may_be_paused:
        return IS_PAUSED
    if vmis.is_migrating(vmi):
        return "a live migration is in progress"
    backup = status.changed_block_tracking.backup_status if status.changed_block_tracking is not None else None
    if backup is not None and not backup.completed and not backup.failed:
        return f"backup {backup.backup_name or ''} is in progress"
    if status.fs_freeze_status == "frozen":
        return "its file systems are frozen"
    # Before the phase Running, KubeVirt attaches the volumes of earlier hot-plugs. A restart does no harm then.
    if vmis.is_running(vmi) and status.volume_status:
        return f"a hot-plug of volume {status.volume_status[0].name} is in progress"
    if may_interrupt_resizing:
        return ""
    if find_true(status.conditions, CPU_CHANGE):
        return "a hot-plug of CPUs is in progress"
    return "a hot-plug of memory is in progress" if find_true(status.conditions, MEMORY_CHANGE) else ""
