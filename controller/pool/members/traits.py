"""The traits of the VMs of a pool. VMs with equal traits are in one group of `Members`.

The traits are a VM with its VMI and its unready period, without what differs from VM to VM: names, UIDs, the node, the
names of disks, the texts of messages, the numbers of generations. A message may have the name of the VM's own disk or
Pod.

Most VMs of a large pool are *steady*: they run, they have been ready for a while, and no work on them is pending. Their
traits have no times, and say whether the VM can migrate. So steady VMs with the same revision and labels have equal
traits. The traits of other VMs have all states and times that a decision reads. These times have whole seconds. So the
VMs that start or fail in the same second are in one group. Two kinds of VMs are alone in their groups: VMs that are
being deleted, and VMs with an annotation of vmherd.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from controller.apimachinery.conditions import Condition, find_condition
from controller.kubevirt import vmis
from controller.kubevirt.annotations import IN_SERVICE, POOL_FINALIZER, PREFIX, REVISION_NAME, VM_GENERATION
from controller.kubevirt.busy import BEFORE_ALL
from controller.kubevirt.delicate import delicate_reason
from controller.kubevirt.live_updates import is_changing, is_seen, restart_required
from controller.kubevirt.vm_types import (
    READY,
    MachineTemplate,
    MachineTemplateMeta,
    MachineTemplateSpec,
    VirtualMachine,
    VirtualMachineSpec,
    VirtualMachineStatus,
)
from controller.kubevirt.vmi_types import LIVE_MIGRATABLE, VirtualMachineInstance, VMIStatus
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
from controller.pool.spec.naming import parse_name
from controller.runtime.members.groups import SOME_MESSAGE, SOME_NODE, Texts, like, shared_meta, texts_of
from informers.meta import annotations_of, labels_of

NOT_SEEN: Final = -1
"""The generation that KubeVirt has seen, if it is not the present one. No object has the generation -1."""

OTHER: Final = "(another VMI)"
"""The UID in a request that is not about the present VMI."""

_IS_READY: Final = (Condition(type=READY, status="True"),)
_STEADY_VM: Final = VirtualMachineStatus(printable_status="Running", conditions=_IS_READY)
_STEADY_NOT_SEEN: Final = like(_STEADY_VM, desired_generation=NOT_SEEN)
_STEADY_VMI: Final = VMIStatus(phase="Running", node_name=SOME_NODE, conditions=_IS_READY)
_FINALIZERS: Final = (POOL_FINALIZER,)
_NO_LABELS: Final = MachineTemplateMeta()
_NO_SPEC: Final = MachineTemplateSpec()


def erase(machine: Machine) -> Machine | None:
    """Return the member without what is no trait, or None if it is alone in its group."""
    vm, vmi, downtime = machine.vm, machine.vmi, machine.downtime
    is_unusual = parse_name(vm.metadata.name) is None or vm.spec is None or vm.undecodable
    is_annotated = any(name.startswith(PREFIX) for name in annotations_of(vm.metadata))
    if is_unusual or is_annotated or is_deleting(vm):
        return None
    steady = downtime is None and is_steady(vm, vmi)
    return Machine(
        _erase_vm(vm, vmi, steady=steady),
        _erase_vmi(vmi, steady=steady) if vmi is not None else None,
        replace(downtime, uid="") if downtime is not None else None,
    )


def is_steady(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> bool:
    """Return True if the VM and its VMI are ready, and no other fact about them matters to a decision.

    The VM has no annotation of vmherd, and it is not being deleted.
    """
    return (
        vmi is not None
        and vmis.is_ready(vmi)
        and vmis.is_running(vmi)
        and vmis.is_active(vmi)
        and is_ready(vm)
        and printable_status_of(vm) == "Running"
        and not start_failures_of(vm)
        and not (vm.status is not None and vm.status.state_change_requests)
        and restart_required(vm) is None
        and not is_changing(vmi)
        and not delicate_reason(vm, vmi, BEFORE_ALL)
    )


def _erase_vm(vm: VirtualMachine, vmi: VirtualMachineInstance | None, *, steady: bool) -> VirtualMachine:
    created, seen = None if steady else vm.metadata.creation_timestamp, is_seen(vm)
    finalizers = _FINALIZERS if has_pool_finalizer(vm) else None
    meta = shared_meta(labels_of(vm.metadata), None, finalizers=finalizers, creation_timestamp=created)
    if steady:
        return VirtualMachine(meta, _erase_spec(vm), _STEADY_VM if seen else _STEADY_NOT_SEEN)
    return VirtualMachine(meta, _erase_spec(vm), vm.status and _erase_status(vm.status, vmi, seen=seen))


def _erase_spec(vm: VirtualMachine) -> VirtualMachineSpec:
    labels, nodes, spec = template_labels_of(vm), node_selector_of(vm), vm.spec or VirtualMachineSpec()
    inner = spec.template.spec if spec.template is not None else None
    grace_s = inner.termination_grace_period_seconds if inner is not None else None
    return VirtualMachineSpec(spec.running, spec.run_strategy, _template(texts_of(labels), texts_of(nodes), grace_s))


@lru_cache(maxsize=1024)
def _template(labels: Texts | None, nodes: Texts | None, grace_s: int | None) -> MachineTemplate:
    return MachineTemplate(
        like(_NO_LABELS, labels=labels), like(_NO_SPEC, node_selector=nodes, termination_grace_period_seconds=grace_s)
    )


def _erase_status(
    status: VirtualMachineStatus, vmi: VirtualMachineInstance | None, *, seen: bool
) -> VirtualMachineStatus:
    """Return the status without generations and texts, and without the UID of the VMI."""
    uid = vmi.metadata.uid if vmi is not None else ""
    requests = [like(each, uid="" if each.uid == uid else OTHER) for each in status.state_change_requests or ()]
    return like(
        status,
        conditions=_erase_conditions(status.conditions),
        state_change_requests=tuple(requests) or None,
        desired_generation=None if seen else NOT_SEEN,
    )


def _erase_vmi(vmi: VirtualMachineInstance, *, steady: bool) -> VirtualMachineInstance:
    meta, status = vmi.metadata, vmi.status
    revision = labels_of(meta).get(REVISION_NAME)
    labels = {REVISION_NAME: revision} if revision is not None else {}
    labels |= {IN_SERVICE: "false"} if labels_of(meta).get(IN_SERVICE) == "false" else {}
    notes = {name: text for name, text in annotations_of(meta).items() if name != VM_GENERATION}
    if revision is None and VM_GENERATION in annotations_of(meta):
        notes[VM_GENERATION] = ""  # it shows that a restart changes the VMI
    if steady:
        blocked = find_condition(status.conditions if status is not None else None, LIVE_MIGRATABLE)
        told = _STEADY_VMI if blocked is None else _immovable(blocked.reason)
        return VirtualMachineInstance(shared_meta(labels, notes), told)
    times = {"creation_timestamp": meta.creation_timestamp, "deletion_timestamp": meta.deletion_timestamp}
    node = SOME_NODE if status is not None and status.node_name else None
    status = status and like(
        status, node_name=node, evacuation_node_name=None, conditions=_erase_conditions(status.conditions)
    )
    return VirtualMachineInstance(shared_meta(labels, notes, **times), status, vmi.undecodable)


@lru_cache(maxsize=1024)
def _immovable(reason: str | None) -> VMIStatus:
    blocked = Condition(type=LIVE_MIGRATABLE, status="False", reason=reason)
    return like(_STEADY_VMI, conditions=(*_IS_READY, blocked))


def _erase_conditions(conditions: Iterable[Condition] | None) -> tuple[Condition, ...]:
    return tuple(
        [
            like(each, message=SOME_MESSAGE if each.message else None, observed_generation=None)
            for each in conditions or ()
        ]
    )
