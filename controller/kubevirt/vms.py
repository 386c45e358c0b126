"""What can be said of one VirtualMachine, each one question. Its VMI has the same name, and is asked in `vmis`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from controller.apimachinery.conditions import Condition, find_condition, moment
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
"""The `printableStatus` of a VM that does not come up by itself (P15)."""


def is_deleting(vm: VirtualMachine) -> bool:
    return vm.metadata.deletion_timestamp is not None


def is_deleting_with_disks(vm: VirtualMachine) -> bool:
    """It is being deleted in the foreground: what it owns goes before it does, so nothing of it can be kept."""
    return is_deleting(vm) and FOREGROUND in (vm.metadata.finalizers or ())


def is_held(vm: VirtualMachine) -> bool:
    """Our finalizer keeps it from vanishing (P6)."""
    return POOL_FINALIZER in (vm.metadata.finalizers or ())


def is_ready(vm: VirtualMachine) -> bool:
    condition = ready_condition(vm)
    return condition is not None and condition.status == "True"


def ready_condition(vm: VirtualMachine) -> Condition | None:
    return find_condition(vm.status.conditions if vm.status is not None else None, READY)


def unready_since(vm: VirtualMachine) -> datetime | None:
    """Since when Ready=False; None while it is true, or while nobody has said anything."""
    condition = ready_condition(vm)
    if condition is None or condition.status != "False":
        return None
    return moment(condition.last_transition_time or vm.metadata.creation_timestamp)


def printable_status_of(vm: VirtualMachine) -> str:
    return (vm.status.printable_status or "") if vm.status is not None else ""


def start_failures_of(vm: VirtualMachine) -> int:
    """How often in a row it failed to start."""
    failure = vm.status.start_failure if vm.status is not None else None
    return (failure.consecutive_fail_count or 0) if failure is not None else 0


def is_meant_to_run(vm: VirtualMachine) -> bool:
    """Whether its own spec asks for a VMI now (P14). One that a user stopped, or that has done its work, need not."""
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


def comes_back(vm: VirtualMachine, *, made_anew: bool) -> bool:
    """Whether it runs again by itself when its VMI is deleted, or, with `made_anew`, when the pool replaces the VM.

    One that is rerun on failure takes the loss of its VMI for a shutdown by its user, and stays off.
    """
    strategy = vm.spec.run_strategy if vm.spec is not None else None
    return strategy not in (("Manual", "Halted") if made_anew else ("Manual", "Halted", "RerunOnFailure", "Once"))


def revision_of(vm: VirtualMachine) -> str:
    """The name of the revision that it is made from; "" where it has none."""
    return labels_of(vm.metadata).get(REVISION_NAME, "")


def template_labels_of(vm: VirtualMachine) -> Mapping[str, str]:
    """The labels that its VMI gets."""
    template = vm.spec.template if vm.spec is not None else None
    return (template and template.metadata and template.metadata.labels) or NO_LABELS


def node_selector_of(vm: VirtualMachine) -> Mapping[str, str]:
    """The node labels that its VMI asks for."""
    template = vm.spec.template if vm.spec is not None else None
    return (template and template.spec and template.spec.node_selector) or NO_LABELS


def disk_names_of(vm: VirtualMachine) -> tuple[str, ...]:
    """The DataVolumes and PersistentVolumeClaims that it names, each once; a DataVolume's claim has its name."""
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
