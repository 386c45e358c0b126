"""Moments in which a VM must not be restarted, deleted or healed."""

from typing import Any

import msgspec
import pytest

from controller.kubevirt.delicate import delicate_reason
from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from tests.builders import NOW

VOLUME_MIGRATION = "a volume migration is in progress"
LIVE_MIGRATION = "a live migration is in progress"
RECOVERY = "a volume migration was interrupted, and the virtual machine needs manual recovery"
ENDED = "2026-08-01T11:30:00Z"


def condition(name: str, status: str = "True") -> dict[str, Any]:
    return {"conditions": [{"type": "Ready", "status": "True"}, {"type": name, "status": status}]}


def volume(phase: str | None) -> dict[str, Any]:
    return {"volumeStatus": [{"name": "root", "target": "vda"}, {"name": "data", "target": "sda", "phase": phase}]}


def migrated(name: str) -> dict[str, Any]:
    return {"volumeUpdateState": {"volumeMigrationState": {"migratedVolumes": [{"volumeName": name}]}}}


def vm(status: Any) -> VirtualMachine:
    return VMS.decode(msgspec.json.encode({"metadata": {"name": "web-0"}, "status": status}))


def vmi(status: dict[str, Any] | None) -> VirtualMachineInstance:
    given = None if status is None else {"phase": "Running", **status}
    return VMIS.decode(msgspec.json.encode({"metadata": {"name": "web-0"}, "status": given}))


CASES: dict[str, tuple[Any, Any, str]] = {
    # name: (status of the VM, status of the VMI, reason)
    "nothing is known": (None, None, ""),
    "at rest": (condition("LiveMigratable"), condition("LiveMigratable"), ""),
    "snapshot": ({"snapshotInProgress": "monday"}, {}, "snapshot monday is in progress"),
    "snapshot that ended": ({"snapshotInProgress": None}, {}, ""),
    "restore": ({"restoreInProgress": "monday"}, {}, "restore monday is in progress"),
    "volume migration, in the VM": (condition("VolumesChange"), {}, VOLUME_MIGRATION),
    "volume migration, in the VMI": ({}, condition("VolumesChange"), VOLUME_MIGRATION),
    "volume migration that was announced": ({}, {"migratedVolumes": [{"volumeName": "data"}]}, VOLUME_MIGRATION),
    "volume migration that succeeded": (migrated("data"), {"migratedVolumes": []}, ""),
    "volume migration that was cancelled": ({}, condition("VolumesChange", "False"), ""),
    "volume migration that was interrupted": (condition("ManualRecoveryRequired"), {}, RECOVERY),
    "live migration": ({}, {"migrationState": {"startTimestamp": ENDED}}, LIVE_MIGRATION),
    "live migration that did not start yet": ({}, {"migrationState": {"migrationUid": "u"}}, LIVE_MIGRATION),
    "live migration that succeeded": ({}, {"migrationState": {"completed": True, "endTimestamp": ENDED}}, ""),
    "live migration that failed": ({}, {"migrationState": {"failed": True}}, ""),
    "live migration that ended": ({}, {"migrationState": {"endTimestamp": ENDED}}, ""),
    "live migration of a lost VMI": ({}, {"phase": "Failed", "migrationState": {}}, ""),
    "hot-plug of CPUs": ({}, condition("HotVCPUChange"), "a hot-plug of CPUs is in progress"),
    "hot-plug of memory": ({}, condition("HotMemoryChange"), "a hot-plug of memory is in progress"),
    "hot-plug of memory that failed": ({}, condition("HotMemoryChange", "False"), ""),
    "volume that is pending": ({}, volume("Pending"), "a hot-plug of volume data is in progress"),
    "volume that is mounted": ({}, volume("MountedToPod"), "a hot-plug of volume data is in progress"),
    "volume that is being detached": ({}, volume("Detaching"), "a hot-plug of volume data is in progress"),
    "memory dump": ({}, volume("MemoryDumpInProgress"), "a hot-plug of volume data is in progress"),
    "memory dump that ended": ({}, volume("MemoryDumpCompleted"), ""),
    "volume that is attached": ({}, volume("Ready"), ""),
    "volume of the launcher Pod": ({}, volume(None), ""),
    "volume of a VMI that starts": ({}, {"phase": "Scheduled", **volume("AttachedToNode")}, ""),
    "backup": ({}, {"changedBlockTracking": {"backupStatus": {"backupName": "b"}}}, "backup b is in progress"),
    "backup that ended": ({}, {"changedBlockTracking": {"backupStatus": {"completed": True}}}, ""),
    "no backup": ({}, {"changedBlockTracking": {"state": "Enabled"}}, ""),
    "frozen file systems": ({}, {"fsFreezeStatus": "frozen"}, "its file systems are frozen"),
}


@pytest.mark.parametrize(("of_vm", "of_vmi", "reason"), CASES.values(), ids=CASES)
def test_the_reason_names_the_operation_that_a_restart_would_interrupt(of_vm: Any, of_vmi: Any, reason: str):
    assert delicate_reason(vm(of_vm), vmi(of_vmi), NOW) == reason


@pytest.mark.parametrize("name", ["HotVCPUChange", "HotMemoryChange"])
def test_a_caller_may_interrupt_a_hot_plug_of_cpus_or_memory(name: str):
    assert delicate_reason(vm({}), vmi(condition(name)), NOW, may_interrupt_resizing=True) == ""


def test_a_caller_may_never_interrupt_a_live_migration():
    migrating = {"migrationState": {}, **condition("HotVCPUChange")}
    assert delicate_reason(vm({}), vmi(migrating), NOW, may_interrupt_resizing=True) == LIVE_MIGRATION
