"""The traits of the VMs of a pool. VMs with equal traits are in one group of `Members`.

Most VMs of a large pool are *steady*: they run, they are ready, and no work on them is pending. Steady VMs with the
same revision and labels have equal traits.

The traits of other VMs also contain all states and times that a decision reads. These times have whole seconds. So the
VMs that start or fail in the same second are in one group. Two kinds of VMs are alone in their groups: VMs that are
being deleted, and VMs with an annotation of vmherd.
"""

from collections.abc import Hashable, Mapping

from msgspec.structs import replace

from controller.kubevirt import vmis
from controller.kubevirt.annotations import PREFIX, REVISION_NAME
from controller.kubevirt.busy import BEFORE_ALL, busy_mark
from controller.kubevirt.delicate import delicate_reason
from controller.kubevirt.live_updates import verdict_of
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vms import (
    has_pool_finalizer,
    is_deleting,
    is_ready,
    node_selector_of,
    printable_status_of,
    start_failures_of,
    template_labels_of,
)
from controller.pool.members.machine import Machine
from controller.pool.members.unready_periods import traits_of_period
from controller.pool.spec.naming import parse_name
from controller.replicas.catalogue import Place
from controller.replicas.wrong_annotations import wrong_on
from informers.meta import NO_LABELS, annotations_of, labels_of


def traits_of(machine: Machine) -> Hashable:
    """Return the traits of a member: of its VM, its VMI and its unready period."""
    vm, vmi, downtime = machine.vm, machine.vmi, machine.downtime
    parsed = parse_name(vm.metadata.name)
    if parsed is None or vm.spec is None or is_deleting(vm) or vm.undecodable or _is_annotated(vm):
        return vm.metadata.name
    return (
        parsed[0],
        _items(labels_of(vm.metadata)),
        _items(template_labels_of(vm)),
        _items(node_selector_of(vm)),
        vm.spec.run_strategy,
        vm.spec.running,
        has_pool_finalizer(vm),
        labels_of(vmi.metadata).get(REVISION_NAME) if vmi is not None else None,
        verdict_of(vm, vmi) if vmi is not None else None,
        (busy_mark(vmi.metadata), wrong_on(vmi.metadata, Place.VMI_OF_VM)) if vmi is not None else (),
        traits_of_period(downtime) if downtime is not None else None,
        None if is_steady(vm, vmi) else (vm.status, vm.metadata.creation_timestamp, _state_of(vmi)),
    )


def is_steady(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> bool:
    """Return True if the VM and its VMI are ready, and no other fact about them matters to a decision."""
    return (
        vmi is not None
        and vmis.is_ready(vmi)
        and vmis.is_running(vmi)
        and vmis.is_active(vmi)
        and is_ready(vm)
        and printable_status_of(vm) == "Running"
        and not is_deleting(vm)
        and not start_failures_of(vm)
        and not (vm.status is not None and vm.status.state_change_requests)
        and not _is_annotated(vm)
        and not delicate_reason(vm, vmi, BEFORE_ALL)
    )


def _is_annotated(vm: VirtualMachine) -> bool:
    return any(name.startswith(PREFIX) for name in annotations_of(vm.metadata))


def _state_of(vmi: VirtualMachineInstance | None) -> Hashable:
    """Return the fields of the VMI without its name and its node."""
    if vmi is None:
        return None
    meta, status = vmi.metadata, vmi.status
    return (
        meta.creation_timestamp,
        meta.deletion_timestamp,
        replace(status, node_name=None) if status is not None else None,
        vmi.undecodable,
    )


def _items(labels: Mapping[str, str]) -> Hashable:
    return tuple(labels.items()) if labels is not NO_LABELS else None
