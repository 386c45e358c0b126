"""Functions that read the state of one VirtualMachine. A VM's VMI has the same name: see `vmis`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from controller.apimachinery.conditions import Condition, find_condition, with_timezone
from controller.kubevirt.annotations import POOL_FINALIZER, REVISION_NAME
from controller.kubevirt.vm_types import READY, VirtualMachine
from informers.meta import NO_LABELS, labels_of

FOREGROUND: Final = "foregroundDeletion"

BROKEN_STATES: Final = frozenset(
    {
        "CrashLoopBackOff",
        "ErrorUnschedulable",
        "DataVolumeError",
        "ErrorPvcNotFound",
        "ErrImagePull",
        "ImagePullBackOff",
    }
)
"""The values of `printableStatus` for a VM that fails to start (P15)."""


def is_deleting(vm: VirtualMachine) -> bool:
    return vm.metadata.deletion_timestamp is not None


def is_deleting_with_disks(vm: VirtualMachine) -> bool:
    """True if the VM is being deleted in the foreground. The garbage collector then deletes its disks before the VM, so
    the disks cannot be kept.
    """
    return is_deleting(vm) and FOREGROUND in (vm.metadata.finalizers or ())


def has_pool_finalizer(vm: VirtualMachine) -> bool:
    """True if the VM has our finalizer, so the API server cannot remove it yet (P6)."""
    return POOL_FINALIZER in (vm.metadata.finalizers or ())


def is_ready(vm: VirtualMachine) -> bool:
    condition = ready_condition(vm)
    return condition is not None and condition.status == "True"


def ready_condition(vm: VirtualMachine) -> Condition | None:
    return find_condition(vm.status.conditions if vm.status is not None else None, READY)


def unready_since(vm: VirtualMachine) -> datetime | None:
    """The time since when the VM has Ready=False; None if the condition is absent or has another status. If the
    condition has no transition time, this is the creation time.
    """
    condition = ready_condition(vm)
    if condition is None or condition.status != "False":
        return None
    return with_timezone(condition.last_transition_time or vm.metadata.creation_timestamp)


def printable_status_of(vm: VirtualMachine) -> str:
    return (vm.status.printable_status or "") if vm.status is not None else ""


def start_failures_of(vm: VirtualMachine) -> int:
    """The number of consecutive failed starts of the VM."""
    failure = vm.status.start_failure if vm.status is not None else None
    return (failure.consecutive_fail_count or 0) if failure is not None else 0


def is_meant_to_run(vm: VirtualMachine) -> bool:
    """True if the spec of the VM requires a VMI now (P14). False if a user has stopped the VM, or if the VM has
    finished and its run strategy does not restart it.
    """
    spec = vm.spec
    if spec is None:
        return False
    match spec.run_strategy:
        case None:
            return bool(spec.running)
        case "Halted":
            return False
        case "Manual" | "Once" | "RerunOnFailure":
            return printable_status_of(vm) not in ("Stopped", "Stopping")
        case _:
            return True


def comes_back(vm: VirtualMachine, *, recreated: bool) -> bool:
    """True if the VM starts again without a user after its VMI was deleted. With `recreated`: after the pool has
    replaced the VM by a new one.

    With the run strategy RerunOnFailure a deleted VMI counts as a shutdown by the user, so the VM stays off.
    """
    strategy = vm.spec.run_strategy if vm.spec is not None else None
    return strategy not in (("Manual", "Halted") if recreated else ("Manual", "Halted", "RerunOnFailure", "Once"))


def revision_of(vm: VirtualMachine) -> str:
    """The name of the revision from which the VM was created; "" if the VM has no revision label."""
    return labels_of(vm.metadata).get(REVISION_NAME, "")


def template_labels_of(vm: VirtualMachine) -> Mapping[str, str]:
    """The labels of the VM's template, which its VMI gets."""
    template = vm.spec.template if vm.spec is not None else None
    return (template and template.metadata and template.metadata.labels) or NO_LABELS


def node_selector_of(vm: VirtualMachine) -> Mapping[str, str]:
    """The node selector of the VM's template, which its VMI gets."""
    template = vm.spec.template if vm.spec is not None else None
    return (template and template.spec and template.spec.node_selector) or NO_LABELS


def disk_names_of(vm: VirtualMachine) -> tuple[str, ...]:
    """The names of the VM's DataVolumes and PersistentVolumeClaims, without duplicates. A DataVolume and its claim have
    the same name.
    """
    spec = vm.spec
    if spec is None:
        return ()
    names = [template.metadata and template.metadata.name for template in spec.data_volume_templates or ()]
    inner = spec.template.spec if spec.template is not None else None
    for volume in (inner.volumes if inner is not None else None) or ():
        claim = volume.persistent_volume_claim
        names.append(volume.data_volume.name if volume.data_volume is not None else None)
        names.append(claim.claim_name if claim is not None else None)
    return tuple(dict.fromkeys(name for name in names if name))
