"""Functions that read the state of one VirtualMachine. The module `vmis` reads the VMI of a VM."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum, auto
from typing import Final

from controller.apimachinery.conditions import Condition, find_condition, with_timezone
from controller.kubevirt import vmis
from controller.kubevirt.annotations import POOL_FINALIZER, REVISION_NAME
from controller.kubevirt.vm_types import READY, StateChangeRequest, VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from informers.meta import NO_LABELS, labels_of

REVISION_NAME_PATTERN: Final = re.compile(r"(.+?)-[0-9]+(?:-[0-9a-f]{8})?", re.ASCII)
_OTHER_REVISION_NAME: Final = re.compile(r".*[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-[0-9]+", re.ASCII)

ONCE: Final = "Once"
"""The run strategy of a VM that runs one time. If a user deletes its VMI, KubeVirt starts it again."""

VMI_NOT_EXISTS: Final = "VMINotExists"
"""The reason of the condition Ready of a VM without a VMI."""

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
"""The values of `printableStatus` of a VM that fails to start (P15)."""


def is_deleting(vm: VirtualMachine) -> bool:
    return vm.metadata.deletion_timestamp is not None


def is_deleting_with_disks(vm: VirtualMachine) -> bool:
    """Return True if the VM is being deleted in the foreground. Its disks go before it, so they cannot be kept."""
    return is_deleting(vm) and FOREGROUND in (vm.metadata.finalizers or ())


def has_pool_finalizer(vm: VirtualMachine) -> bool:
    """Return True if the VM has the pool finalizer. The API server does not remove a VM with this finalizer (P6)."""
    return POOL_FINALIZER in (vm.metadata.finalizers or ())


def is_ready(vm: VirtualMachine) -> bool:
    condition = ready_condition(vm)
    return condition is not None and condition.status == "True"


def ready_condition(vm: VirtualMachine) -> Condition | None:
    return find_condition(vm.status.conditions if vm.status is not None else None, READY)


def unready_since(vm: VirtualMachine) -> datetime | None:
    """Return since when the VM's condition `Ready` is "False", by default its creation, or None."""
    condition = ready_condition(vm)
    if condition is None or condition.status != "False":
        return None
    return with_timezone(condition.last_transition_time or vm.metadata.creation_timestamp)


def was_never_ready(vm: VirtualMachine) -> bool:
    """Return True if KubeVirt has not written the status yet. A later status proves nothing: restarts have the same."""
    return not vm.undecodable and not printable_status_of(vm) and ready_condition(vm) is None


def became_ready_at(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> datetime | None:
    """Return when the VM became ready, or None. The guest of its `vmi` may run later than the condition says."""
    condition = ready_condition(vm)
    if condition is None or condition.status != "True":
        return None
    started = vmis.entered(vmi, "Running") if vmi is not None else None
    return max(filter(None, (with_timezone(condition.last_transition_time), started)), default=None)


def printable_status_of(vm: VirtualMachine) -> str:
    return (vm.status.printable_status or "") if vm.status is not None else ""


def start_failures_of(vm: VirtualMachine) -> int:
    failure = vm.status.start_failure if vm.status is not None else None
    return (failure.consecutive_fail_count or 0) if failure is not None else 0


def should_run(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> bool:
    """Return True if the VM should have a running VMI now (P14), also during a restart and before KubeVirt has seen it.

    Return False if a user has stopped it, or if it has finished and its run strategy does not start it again. KubeVirt
    starts a VM with Once whenever it has no VMI, although its status says "Stopped". It starts one with RerunOnFailure
    also if the strategy in its status is still another one.
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
            is_off = printable_status_of(vm) in ("Stopped", "Stopping") or _stays_unbound(vm)
            is_without = vmi is None or vmis.is_deleting(vmi)
            starts = is_start_requested(vm) or _is_switched_on(vm) or (spec.run_strategy == ONCE and is_without)
            # The VMI of a start is seen before the status of its VM.
            starts = starts or (vmi is not None and vmis.is_active(vmi) and not is_stop_requested(vm, vmi.metadata.uid))
            return not is_off or starts or (_is_new(vm) and starts_after_creation(vm))
        case _:
            return True


def _is_switched_on(vm: VirtualMachine) -> bool:
    """Return True if the run strategy has changed to RerunOnFailure, and KubeVirt has not seen that yet."""
    seen = vm.status.run_strategy if vm.status is not None else None
    return bool(seen) and vm.spec is not None and vm.spec.run_strategy == "RerunOnFailure" != seen


def is_without_vmi(vm: VirtualMachine) -> bool:
    """Return True if KubeVirt itself says that the VM has no VMI. It may see the end of a VMI later than others do."""
    condition = ready_condition(vm)
    return condition is not None and condition.reason == VMI_NOT_EXISTS


def _stays_unbound(vm: VirtualMachine) -> bool:
    """Return True for a stopped VM with RerunOnFailure and an unbound claim, which KubeVirt 1.9 shows otherwise."""
    status = vm.status
    if status is None or status.run_strategy != "RerunOnFailure" or is_ready(vm):
        return False
    return printable_status_of(vm) == "WaitingForVolumeBinding" and is_without_vmi(vm)


def _is_new(vm: VirtualMachine) -> bool:
    return vm.status is None or not (vm.status.conditions or _requests_of(vm))


def stopped_by(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> str:
    """Return the field that keeps the VM from running, such as `runStrategy Halted`, or "" if it should run."""
    if should_run(vm, vmi) or vm.undecodable or is_deleting(vm):
        return ""
    strategy = vm.spec.run_strategy if vm.spec is not None else None
    return f"runStrategy {strategy}" if strategy else "running is false"


class AfterStop(Enum):
    """What KubeVirt does with a VM whose VMI was deleted: it starts, waits for a request, or stays stopped."""

    STARTS = auto()
    WAITS = auto()
    STAYS = auto()


def after_stop(vm: VirtualMachine) -> AfterStop:
    """With RerunOnFailure, the end of a VMI is a shutdown by the user. With Once, a VM without a VMI always starts."""
    spec = vm.spec
    strategy = spec.run_strategy if spec is not None else None
    match strategy:
        case "Manual" | "RerunOnFailure":
            return AfterStop.WAITS
        case "Halted":
            return AfterStop.STAYS
        case None if spec is None or not spec.running:
            return AfterStop.STAYS
        case _:
            return AfterStop.STARTS


def starts_after_creation(vm: VirtualMachine) -> bool:
    """Return True if KubeVirt starts a new VM with the run strategy of this VM."""
    strategy = vm.spec.run_strategy if vm.spec is not None else None
    return strategy != "Manual" and after_stop(vm) is not AfterStop.STAYS


def has_finished(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> bool:
    """Return True if the VMI of the VM has ended, and KubeVirt does not start the VM again (P25)."""
    if vmi is None or vm.spec is None or vm.spec.run_strategy != ONCE or is_deleting(vm):
        return False
    return vmis.is_final(vmi) and not vmis.is_deleting(vmi) and not is_start_requested(vm)


def is_start_requested(vm: VirtualMachine) -> bool:
    """Return True if a user or a controller requested a start or a restart that KubeVirt has not done yet."""
    return any(each.action == "Start" for each in _requests_of(vm))


def is_stop_requested(vm: VirtualMachine, vmi_uid: str) -> bool:
    return any(each.action == "Stop" and each.uid == vmi_uid for each in _requests_of(vm))


def _requests_of(vm: VirtualMachine) -> Iterable[StateChangeRequest]:
    return (vm.status.state_change_requests or ()) if vm.status is not None else ()


def is_revision_name(name: str) -> bool:
    """Return True if a pool may give this name to a new revision: `<pool>-<generation>`, maybe with a part of a digest.
    KubeVirt gives names with a UID before the last number to the revisions of VMs and instance types.
    """
    return REVISION_NAME_PATTERN.fullmatch(name) is not None and _OTHER_REVISION_NAME.fullmatch(name) is None


def revision_of(vm: VirtualMachine) -> str:
    """Return the pool's revision from which the VM has its spec, or "". The labels of the VM and of its template are
    written with the spec. If another program changes one of them, the other one counts, mostly that of the template.
    """
    own, inner = labels_of(vm.metadata).get(REVISION_NAME, ""), template_labels_of(vm).get(REVISION_NAME, "")
    return inner if inner == own or (inner and (is_revision_name(inner) or not is_revision_name(own))) else own


def has_own_revision(vm: VirtualMachine) -> bool:
    """Return True if the label of the VM itself names its revision, too."""
    return labels_of(vm.metadata).get(REVISION_NAME, "") == revision_of(vm)


def template_labels_of(vm: VirtualMachine) -> Mapping[str, str]:
    template = vm.spec.template if vm.spec is not None else None
    return (template and template.metadata and template.metadata.labels) or NO_LABELS


def node_selector_of(vm: VirtualMachine) -> Mapping[str, str]:
    template = vm.spec.template if vm.spec is not None else None
    return (template and template.spec and template.spec.node_selector) or NO_LABELS


def disk_names_of(vm: VirtualMachine) -> tuple[str, ...]:
    """Return the names of the VM's DataVolumes and claims, without duplicates: both have the same name."""
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
