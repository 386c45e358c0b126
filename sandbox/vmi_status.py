"""Builds the patches that write the state of a VMI, with all conditions: a merge patch replaces lists.

With the detail `full`, each write of one of KubeVirt's programs is a patch. With `short`, one patch has all of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid5

import msgspec

from controller.apimachinery.conditions import Condition
from controller.apimachinery.quantities import parse_quantity
from controller.kubevirt.vmi_types import PhaseTransition
from sandbox.step import Conditions, Patch, patch_of, updated, without
from sandbox.vmis import (
    FINAL_PHASES,
    NODE_LABEL,
    OBSERVED_VERSIONS,
    UNSCHEDULED_PHASES,
    CpuTopology,
    Devices,
    Domain,
    Memory,
    Reason,
    SimulatedVMI,
    VMIState,
    VMIStatus,
    address_for,
    is_observed,
    node_for,
)

RUNTIME_USER: Final = 107
LAUNCHER_IMAGE: Final = "virt-launcher"
MEMORY_OVERHEAD: Final = "288Mi"
QOS_CLASS: Final = "Burstable"

_MESSAGES: Final[Mapping[str, str]] = {
    Reason.POD_NOT_EXISTS: "virt-launcher pod has not yet been scheduled",
    Reason.GUEST_NOT_RUNNING: "Guest VM is not reported as running",
    Reason.CONTAINERS_NOT_READY: "containers with unready status: [compute]",
    Reason.POD_TERMINATING: "virt-launcher pod is terminating",
    Reason.ERR_IMAGE_PULL: "rpc error: code = NotFound desc = failed to pull and unpack image: not found",
    Reason.IMAGE_PULL_BACK_OFF: "Back-off pulling image",
    Reason.PVC_NOT_FOUND: "a PVC that the volumes name does not exist, waiting for it to appear",
    Reason.READINESS_GATES_NOT_READY: (
        'the status of pod readiness gate "kubevirt.io/virtual-machine-unpaused" is not "True", but False'
    ),
    Reason.PAUSED_BY_USER: "VMI was paused by user",
    Reason.PAUSED_IO_ERROR: "VMI was paused, low-level IO error detected",
    Reason.UNSCHEDULABLE: "0/5 nodes are available: 5 Insufficient memory",
}

_CONDITION_OF: Final = {
    Reason.UNSCHEDULABLE: "PodScheduled",
    Reason.PAUSED_BY_USER: "Paused",
    Reason.PAUSED_IO_ERROR: "Paused",
    "": "",
}
"""The condition that shows a problem. The condition Synchronized shows all other problems."""

_NOT_MIGRATABLE: Final = (
    "cannot migrate VMI which does not use masquerade, bridge with "
    "kubevirt.io/allow-pod-bridge-network-live-migration VM annotation or a migratable plugin to connect to the pod "
    "network"
)

_LAUNCHERS: Final = UUID("7f0c7c0e-3a53-4b7e-9a0e-6f3a1c0b5d21")


def initial_status(domain: Domain, now: datetime) -> dict[str, Any]:
    guest = domain.memory.guest if domain.memory is not None else None
    quantity = None if guest is None else str(guest)
    status = VMIStatus(
        phase="Pending",
        phase_transition_timestamps=(PhaseTransition("Pending", now),),
        runtime_user=RUNTIME_USER,
        current_cpu_topology=CpuTopology.of(domain.cpu),
        memory=None if quantity is None else Memory(quantity, quantity, quantity),
    )
    return {**msgspec.to_builtins(status), "guestOSInfo": {}}


def state_patch(
    state: VMIState,
    vmi: SimulatedVMI,
    *,
    now: datetime,
    unseen: Iterable[PhaseTransition] = (),
    finalizers: Sequence[str] | None = None,
    detailed: bool = False,
) -> Patch:
    """Return the patch that writes this state to the VMI.

    It adds the phases `unseen`, which were not written, to the phase history. Other `finalizers` than the VMI's replace
    the whole list, for this resource version. If `detailed`, the fields of `detail_patch` are left out.
    """
    status: dict[str, Any] = {}
    history = vmi.history
    if vmi.status.runtime_user is None:
        initial = initial_status(vmi.domain, now)
        phase_fields = ("phase", "phaseTransitionTimestamps") if vmi.phase else ()
        status |= {name: value for name, value in initial.items() if name not in phase_fields}
    if vmi.phase != state.phase:
        history = (*history, *unseen, PhaseTransition(state.phase, now))
        status |= {"phase": state.phase, "phaseTransitionTimestamps": history}
    if state.phase not in ("", "Pending", *FINAL_PHASES):
        status |= _launcher_fields(vmi, detailed=detailed, has_node=state.problem != Reason.UNSCHEDULABLE)
    is_placed = state.phase not in UNSCHEDULED_PHASES and state.phase not in FINAL_PHASES
    if is_placed:
        status |= _node_fields(vmi, runs=state.phase != "Scheduled")
    conditions = _conditions(state, vmi, history, now)
    if conditions != vmi.conditions:
        status["conditions"] = conditions
    # After a migration, the VMI stays on its new node.
    labels = {NODE_LABEL: vmi.node or node_for(vmi)} if is_placed else {}
    annotations = {} if detailed or is_observed(vmi.metadata) else OBSERVED_VERSIONS
    return vmi_patch(vmi, status=status, labels=labels, annotations=annotations, finalizers=finalizers)


def vmi_patch(
    vmi: SimulatedVMI,
    *,
    status: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    finalizers: Sequence[str] | None = None,
) -> Patch:
    """Return the patch with these changes of the VMI. `finalizers` replace the whole list, if they differ from it."""
    meta: dict[str, Any] = {"labels": labels, "annotations": annotations}
    changes = {name: value for name, value in meta.items() if value}
    replaces = finalizers is not None and tuple(finalizers) != vmi.finalizers
    if replaces:
        changes["finalizers"] = finalizers
    fields: dict[str, Any] = {"status": status} if status else {}
    return patch_of(vmi.metadata, versioned=replaces, metadata=changes, **fields)


def detail_patch(vmi: SimulatedVMI) -> Patch | None:
    """Return KubeVirt's next patch of a VMI in phase Scheduling: first the QoS class, then the node."""
    status = vmi.status
    if vmi.phase != "Scheduling":
        return None
    if status.qos_class is None:
        return vmi_patch(vmi, status={"qosClass": QOS_CLASS})
    has_node = vmi.has_pod or any((status.active_pods or {}).values())
    if not has_node and vmi.problem != Reason.UNSCHEDULABLE:
        return vmi_patch(vmi, status={"activePods": {pod_uid(vmi): node_for(vmi)}})
    return None


def hotplug_patch(vmi: SimulatedVMI) -> Patch | None:
    """Return the patch with the condition for hotplugged CPUs or memory, which a migration ends, or None."""
    conditions = vmi.conditions
    for type_, is_needed in (("HotVCPUChange", _has_new_sockets(vmi)), ("HotMemoryChange", _has_new_memory(vmi))):
        if is_needed:
            conditions = updated(conditions, Condition(type=type_, status="True"))
    return vmi_patch(vmi, status={"conditions": conditions}) if conditions != vmi.conditions else None


def pod_uid(vmi: SimulatedVMI) -> str:
    """Return the UID that stands for the virt-launcher Pod if the simulator creates no Pods."""
    return str(uuid5(_LAUNCHERS, vmi.metadata.uid))


def is_migratable(vmi: SimulatedVMI) -> bool:
    """The default network is a bridge, which does not allow a live migration."""
    devices = vmi.domain.devices
    if devices is None or not devices.interfaces:
        return devices is not None and devices.autoattach_pod_interface is False
    return all("masquerade" in interface for interface in devices.interfaces)


def _has_new_sockets(vmi: SimulatedVMI) -> bool:
    cpu, topology = vmi.domain.cpu, vmi.status.current_cpu_topology
    return cpu is not None and bool(cpu.sockets) and topology is not None and topology.sockets != cpu.sockets


def _has_new_memory(vmi: SimulatedVMI) -> bool:
    memory, told = vmi.domain.memory, vmi.status.memory
    if memory is None or memory.guest is None or told is None or told.guest_requested is None:
        return False
    return parse_quantity(memory.guest) != parse_quantity(told.guest_requested)


def _launcher_fields(vmi: SimulatedVMI, *, detailed: bool, has_node: bool) -> dict[str, Any]:
    told = vmi.status
    pods = told.active_pods or {}
    fields: dict[str, Any] = {}
    if not pods:
        fields |= {"launcherContainerImageVersion": LAUNCHER_IMAGE, "memory": {"memoryOverhead": MEMORY_OVERHEAD}}
    # If the VMI has a Pod, `sandbox.launchers` writes `activePods`.
    if not vmi.has_pod and not any(pods.values()) and (not pods or (has_node and not detailed)):
        fields["activePods"] = {pod_uid(vmi): node_for(vmi) if has_node and not detailed else ""}
    if not detailed and told.qos_class is None:
        fields["qosClass"] = QOS_CLASS
    return fields


def _node_fields(vmi: SimulatedVMI, *, runs: bool) -> dict[str, Any]:
    """Return the status fields about the node, and about the address and migration if the guest runs."""
    fields: dict[str, Any] = {}
    names = _interfaces(vmi)
    if vmi.status.node_name is None:
        fields |= {
            "nodeName": node_for(vmi),
            "migrationTransport": "Unix",
            "interfaces": [{"name": name, "podInterfaceName": "eth0"} for name in names],
            "volumeStatus": [{"name": volume.name, "target": ""} for volume in vmi.volumes],
        }
    if runs and vmi.phase != "Running":
        address = address_for(vmi)
        fields["migrationMethod"] = "LiveMigration"
        fields["interfaces"] = [
            {"name": name, "podInterfaceName": "eth0", "ipAddress": address, "ipAddresses": [address]} for name in names
        ]
    return fields


def _interfaces(vmi: SimulatedVMI) -> tuple[str, ...]:
    devices = vmi.domain.devices or Devices()
    if devices.interfaces:
        return tuple(str(interface.get("name", "default")) for interface in devices.interfaces)
    return () if devices.autoattach_pod_interface is False else ("default",)


def _conditions(
    state: VMIState, vmi: SimulatedVMI, history: Iterable[PhaseTransition], now: datetime
) -> tuple[Condition, ...]:
    conditions: Conditions = vmi.conditions
    if state.unready_reason != Reason.CONDITION_MISSING:
        conditions = updated(conditions, _ready(state, vmi, history, now))
    if state.phase == "Running" and vmi.condition("LiveMigratable") is None:
        conditions = updated(conditions, _live_migratable(vmi))
        conditions = updated(conditions, Condition(type="StorageLiveMigratable", status="True"))
    told = _CONDITION_OF.get(state.problem, "Synchronized")
    conditions = without(conditions, *({"PodScheduled", "Synchronized", "Paused"} - {told}))
    if told:
        probed, status = (now, "True") if told == "Paused" else (None, "False")
        conditions = updated(conditions, _condition(told, status, state.problem, now, probed=probed))
    return conditions


def _ready(state: VMIState, vmi: SimulatedVMI, history: Iterable[PhaseTransition], now: datetime) -> Condition:
    """Return the condition Ready, a copy of the Pod's as in KubeVirt, so with the time of the phase Scheduled."""
    if state.unready_reason == Reason.NO_ANSWER:
        return Condition(type="Ready", status="False", last_transition_time=now)
    if state.unready_reason:
        return _condition("Ready", "False", state.unready_reason, now, probed=now)
    before = vmi.condition("Ready")
    boots = before is None or (before.status == "False" and before.reason == Reason.GUEST_NOT_RUNNING)
    scheduled = {each.phase: each.phase_transition_timestamp for each in history}.get("Scheduled")
    since = scheduled if boots and scheduled is not None else now
    return Condition(type="Ready", status="True", last_transition_time=since)


def _live_migratable(vmi: SimulatedVMI) -> Condition:
    if is_migratable(vmi):
        return Condition(type="LiveMigratable", status="True")
    reason = "InterfaceNotLiveMigratable"
    return Condition(type="LiveMigratable", status="False", reason=reason, message=_NOT_MIGRATABLE)


def _condition(type_: str, status: str, reason: str, now: datetime, *, probed: datetime | None) -> Condition:
    message = _MESSAGES.get(reason)
    return Condition(
        type=type_, status=status, reason=reason, message=message, last_probe_time=probed, last_transition_time=now
    )
