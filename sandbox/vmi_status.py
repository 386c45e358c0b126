"""This module builds the patches that write the state of a VMI.

KubeVirt's VMIs have no status subresource, so a patch of the status is sent to the object itself. A patch contains the
complete list of conditions, because a JSON merge patch replaces lists.

In KubeVirt, several programs write to a VMI. If the setting `detail` (an annotation or an option) is `full`, the
simulator sends each of these writes as a separate patch. If it is `short`, one patch contains all writes up to the next
state that lasts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid5

import msgspec

from controller.apimachinery.quantities import parse_quantity
from sandbox.conditions import Condition, Conditions, updated, without
from sandbox.step import Patch
from sandbox.vmis import (
    CONDITION_MISSING,
    CONTAINERS_NOT_READY,
    ERR_IMAGE_PULL,
    FINAL_PHASES,
    GUEST_NOT_RUNNING,
    IMAGE_PULL_BACK_OFF,
    NODE_LABEL,
    OBSERVED_VERSIONS,
    PAUSED_BY_USER,
    PAUSED_IO_ERROR,
    POD_NOT_EXISTS,
    POD_TERMINATING,
    PVC_NOT_FOUND,
    READINESS_GATES_NOT_READY,
    UNSCHEDULABLE,
    UNSCHEDULED_PHASES,
    CpuTopology,
    Devices,
    Domain,
    Memory,
    PhaseTransition,
    SimulatedVMI,
    VMIState,
    VMIStatus,
    address_for,
    condition_of,
    conditions_of,
    domain_of,
    finalizers_of,
    history_of,
    is_observed,
    node_for,
    phase_of,
    problem_of,
    status_of,
    volumes_of,
)

RUNTIME_USER: Final = 107
LAUNCHER_IMAGE: Final = "virt-launcher"
MEMORY_OVERHEAD: Final = "288Mi"
QOS_CLASS: Final = "Burstable"

_MESSAGES: Final = {
    POD_NOT_EXISTS: "virt-launcher pod has not yet been scheduled",
    GUEST_NOT_RUNNING: "Guest VM is not reported as running",
    CONTAINERS_NOT_READY: "containers with unready status: [compute]",
    POD_TERMINATING: "virt-launcher pod is terminating",
    ERR_IMAGE_PULL: "rpc error: code = NotFound desc = failed to pull and unpack image: not found",
    IMAGE_PULL_BACK_OFF: "Back-off pulling image",
    PVC_NOT_FOUND: "a PVC that the volumes name does not exist, waiting for it to appear",
    READINESS_GATES_NOT_READY: (
        'the status of pod readiness gate "kubevirt.io/virtual-machine-unpaused" is not "True", but False'
    ),
    PAUSED_BY_USER: "VMI was paused by user",
    PAUSED_IO_ERROR: "VMI was paused, low-level IO error detected",
    UNSCHEDULABLE: "0/5 nodes are available: 5 Insufficient memory",
}

_CONDITION_OF: Final = {
    UNSCHEDULABLE: "PodScheduled",
    PAUSED_BY_USER: "Paused",
    PAUSED_IO_ERROR: "Paused",
    "": "",
}
"""The condition that shows a problem. The condition Synchronized shows all other problems."""

_NOT_MIGRATABLE: Final = (
    "cannot migrate VMI which does not use masquerade, bridge with "
    "kubevirt.io/allow-pod-bridge-network-live-migration VM annotation or a migratable plugin to connect to the pod "
    "network"
)

_LAUNCHERS: Final = UUID("7f0c7c0e-3a53-4b7e-9a0e-6f3a1c0b5d21")
_encode: Final = msgspec.json.Encoder().encode


def initial_status(domain: Domain, now: datetime) -> VMIStatus:
    """Return the status that KubeVirt's webhook gives to a new VMI."""
    cpu = domain.cpu
    guest = domain.memory.guest if domain.memory is not None else None
    quantity = None if guest is None else str(guest)
    return VMIStatus(
        phase="Pending",
        phase_transition_timestamps=(PhaseTransition("Pending", now),),
        runtime_user=RUNTIME_USER,
        current_cpu_topology=CpuTopology(
            cores=(cpu and cpu.cores) or 1, sockets=(cpu and cpu.sockets) or 1, threads=(cpu and cpu.threads) or 1
        ),
        memory=None if quantity is None else Memory(quantity, quantity, quantity),
    )


def state_patch(
    state: VMIState,
    vmi: SimulatedVMI,
    *,
    now: datetime,
    unseen: Iterable[PhaseTransition] = (),
    finalizers: Iterable[str] | None = None,
    detailed: bool = False,
) -> Patch:
    """Return the patch that writes this state to the VMI.

    `unseen` are earlier phases that were not written. The patch adds these phases to the phase history. If `finalizers`
    differ from the VMI's finalizers, the patch replaces the whole list. Such a patch contains the resource version. If
    `detailed` is True, the patch leaves out the fields that `detail_patch` writes separately.
    """
    status: dict[str, Any] = {}
    history = history_of(vmi)
    if status_of(vmi).runtime_user is None:
        status |= _initial_fields(vmi, now)
    if phase_of(vmi) != state.phase:
        history = (*history, *unseen, PhaseTransition(state.phase, now))
        status |= {"phase": state.phase, "phaseTransitionTimestamps": history}
    if state.phase not in ("", "Pending", *FINAL_PHASES):
        status |= _launcher_fields(vmi, detailed=detailed, has_node=state.problem != UNSCHEDULABLE)
    is_placed = state.phase not in UNSCHEDULED_PHASES and state.phase not in FINAL_PHASES
    if is_placed:
        status |= _node_fields(vmi, runs=state.phase != "Scheduled")
    conditions = _conditions(state, vmi, history, now)
    if conditions != conditions_of(vmi):
        status["conditions"] = conditions
    # After a migration, the VMI stays on its new node.
    labels = {NODE_LABEL: status_of(vmi).node_name or node_for(vmi)} if is_placed else {}
    annotations = {} if detailed or is_observed(vmi.metadata) else OBSERVED_VERSIONS
    return _patch(vmi, status=status, labels=labels, annotations=annotations, finalizers=finalizers)


def finalizers_patch(vmi: SimulatedVMI, finalizers: Iterable[str]) -> Patch:
    """Return the patch that replaces the list of finalizers."""
    return _patch(vmi, finalizers=finalizers)


def observed_patch(vmi: SimulatedVMI, finalizers: Iterable[str] | None = None) -> Patch:
    """Return the patch that adds the annotations `OBSERVED_VERSIONS`, as virt-controller's first write does."""
    return _patch(vmi, annotations=OBSERVED_VERSIONS, finalizers=finalizers)


def released_patch(vmi: SimulatedVMI, finalizers: Iterable[str]) -> Patch:
    """Return the patch for an ended VMI after the deletion of its Pod. `finalizers` are the finalizers that stay."""
    return _patch(vmi, status={"launcherContainerImageVersion": None, "activePods": None}, finalizers=finalizers)


def generation_patch(vmi: SimulatedVMI, annotation: str, generation: int) -> Patch:
    return _patch(vmi, annotations={annotation: str(generation)})


def detail_patch(vmi: SimulatedVMI) -> Patch | None:
    """Return KubeVirt's next patch of a VMI in phase Scheduling, or None.

    virt-controller first writes the QoS class of the Pod, then the node of the Pod.
    """
    status = status_of(vmi)
    if phase_of(vmi) != "Scheduling":
        return None
    if status.qos_class is None:
        return _patch(vmi, status={"qosClass": QOS_CLASS})
    has_node = vmi.has_pod or any((status.active_pods or {}).values())
    if not has_node and problem_of(vmi) != UNSCHEDULABLE:
        return _patch(vmi, status={"activePods": {pod_uid(vmi): node_for(vmi)}})
    return None


def hotplug_patch(vmi: SimulatedVMI) -> Patch | None:
    """Return the patch with the condition for hotplugged CPUs or memory, or None.

    The condition stays until a migration of the VMI has finished.
    """
    conditions = conditions_of(vmi)
    for type_, is_needed in (("HotVCPUChange", _has_new_sockets(vmi)), ("HotMemoryChange", _has_new_memory(vmi))):
        if is_needed:
            conditions = updated(conditions, _timeless(type_, "True"))
    return _patch(vmi, status={"conditions": conditions}) if conditions != conditions_of(vmi) else None


def pod_uid(vmi: SimulatedVMI) -> str:
    """Return the UID that stands for the virt-launcher Pod if the simulator creates no Pods."""
    return str(uuid5(_LAUNCHERS, vmi.metadata.uid))


def is_migratable(vmi: SimulatedVMI) -> bool:
    """Return True if the VMI's network allows a live migration.

    The default network is a bridge, which does not allow a live migration.
    """
    devices = domain_of(vmi).devices
    if devices is None or not devices.interfaces:
        return devices is not None and devices.autoattach_pod_interface is False
    return all("masquerade" in interface for interface in devices.interfaces)


def _has_new_sockets(vmi: SimulatedVMI) -> bool:
    cpu, topology = domain_of(vmi).cpu, status_of(vmi).current_cpu_topology
    return cpu is not None and bool(cpu.sockets) and topology is not None and topology.sockets != cpu.sockets


def _has_new_memory(vmi: SimulatedVMI) -> bool:
    memory, told = domain_of(vmi).memory, status_of(vmi).memory
    if memory is None or memory.guest is None or told is None or told.guest_requested is None:
        return False
    return parse_quantity(memory.guest) != parse_quantity(told.guest_requested)


def _patch(
    vmi: SimulatedVMI,
    *,
    status: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    finalizers: Iterable[str] | None = None,
) -> Patch:
    meta: dict[str, Any] = {"uid": vmi.metadata.uid}
    if labels:
        meta["labels"] = labels
    if annotations:
        meta["annotations"] = annotations
    if finalizers is not None and tuple(finalizers) != finalizers_of(vmi):
        meta |= {"resourceVersion": vmi.metadata.resource_version, "finalizers": tuple(finalizers)}
    return Patch(_encode({"metadata": meta, "status": status} if status else {"metadata": meta}))


def _initial_fields(vmi: SimulatedVMI, now: datetime) -> dict[str, Any]:
    initial = initial_status(domain_of(vmi), now)
    fields: dict[str, Any] = msgspec.to_builtins(initial)
    fields["guestOSInfo"] = {}
    if phase_of(vmi):
        del fields["phase"], fields["phaseTransitionTimestamps"]
    return fields


def _launcher_fields(vmi: SimulatedVMI, *, detailed: bool, has_node: bool) -> dict[str, Any]:
    """Return the status fields about the virt-launcher Pod."""
    told = status_of(vmi)
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
    """Return the status fields about the node.

    If the guest runs, also return the IP address and the migration method.
    """
    fields: dict[str, Any] = {}
    names = _interfaces(vmi)
    if status_of(vmi).node_name is None:
        fields |= {
            "nodeName": node_for(vmi),
            "migrationTransport": "Unix",
            "interfaces": [{"name": name, "podInterfaceName": "eth0"} for name in names],
            "volumeStatus": [{"name": volume.name, "target": ""} for volume in volumes_of(vmi)],
        }
    if runs and phase_of(vmi) != "Running":
        address = address_for(vmi)
        fields["migrationMethod"] = "LiveMigration"
        fields["interfaces"] = [
            {"name": name, "podInterfaceName": "eth0", "ipAddress": address, "ipAddresses": [address]} for name in names
        ]
    return fields


def _interfaces(vmi: SimulatedVMI) -> tuple[str, ...]:
    devices = domain_of(vmi).devices or Devices()
    if devices.interfaces:
        return tuple(str(interface.get("name", "default")) for interface in devices.interfaces)
    return () if devices.autoattach_pod_interface is False else ("default",)


def _conditions(
    state: VMIState, vmi: SimulatedVMI, history: Iterable[PhaseTransition], now: datetime
) -> tuple[Condition, ...]:
    conditions: Conditions = conditions_of(vmi)
    if state.unready_reason != CONDITION_MISSING:
        conditions = updated(conditions, _ready(state, vmi, history, now))
    if state.phase == "Running" and condition_of(vmi, "LiveMigratable") is None:
        conditions = updated(conditions, _live_migratable(vmi))
        conditions = updated(conditions, _timeless("StorageLiveMigratable", "True"))
    told = _CONDITION_OF.get(state.problem, "Synchronized")
    for type_ in {"PodScheduled", "Synchronized", "Paused"} - {told}:
        conditions = without(conditions, type_)
    if told:
        probed, status = (now, "True") if told == "Paused" else (None, "False")
        conditions = updated(conditions, _condition(told, status, state.problem, now, probed=probed))
    return conditions


def _ready(state: VMIState, vmi: SimulatedVMI, history: Iterable[PhaseTransition], now: datetime) -> Condition:
    """Return the condition Ready.

    As in KubeVirt, the condition of a ready VMI is a copy of the Pod's condition. The Pod is ready before the guest
    runs. So the condition has the time of the phase Scheduled.
    """
    if state.unready_reason:
        return _condition("Ready", "False", state.unready_reason, now, probed=now)
    before = condition_of(vmi, "Ready")
    boots = before is None or (before.status == "False" and before.reason == GUEST_NOT_RUNNING)
    scheduled = {each.phase: each.phase_transition_timestamp for each in history}.get("Scheduled")
    since = scheduled if boots and scheduled is not None else now
    return Condition(type="Ready", status="True", last_transition_time=since)


def _live_migratable(vmi: SimulatedVMI) -> Condition:
    if is_migratable(vmi):
        return _timeless("LiveMigratable", "True")
    return msgspec.structs.replace(
        _timeless("LiveMigratable", "False"), reason="InterfaceNotLiveMigratable", message=_NOT_MIGRATABLE
    )


def _condition(type_: str, status: str, reason: str, now: datetime, *, probed: datetime | None) -> Condition:
    return Condition(
        type=type_,
        status=status,
        reason=reason,
        message=_MESSAGES.get(reason),
        last_probe_time=probed,
        last_transition_time=now,
    )


def _timeless(type_: str, status: str) -> Condition:
    """Return a condition without times, as virt-handler writes its conditions."""
    return Condition(type=type_, status=status)
