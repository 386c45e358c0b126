"""This module defines the fields of a VirtualMachineInstance that the simulator reads, and reads the VMI's state."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from zlib import crc32

import msgspec
from msgspec import Raw, Struct

from informers.meta import ObjectMeta, annotations_of
from informers.resource import Resource
from sandbox.conditions import Condition, find

FINALIZER: Final = "kubevirt.io/foregroundDeleteVirtualMachine"
"""The finalizer of every VMI. The finalizer of a deleted VMI is removed after the VMI's Pod has gone."""

CONTROLLER_FINALIZER: Final = "kubevirt.io/virtualMachineControllerFinalize"
"""The finalizer of a VM's VMI. The VM controller removes the finalizer after it has read the VMI's result."""

OBSERVED_VERSIONS: Final = {
    "kubevirt.io/latest-observed-api-version": "v1",
    "kubevirt.io/storage-observed-api-version": "v1",
}
"""The annotations that virt-controller adds with its first write to each VM and VMI."""

NODE_LABEL: Final = "kubevirt.io/nodeName"
NODES: Final = ("node01", "node02", "node03", "node04", "node05")

UNSCHEDULED_PHASES: Final = frozenset({"", "Pending", "Scheduling"})
"""The phases of a VMI that has no node yet."""

FINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})

CONDITION_MISSING: Final = "VMIConditionMissing"
"""The `unready_reason` in the state of a VMI that has a phase but no condition Ready."""

POD_NOT_EXISTS: Final = "PodNotExists"
GUEST_NOT_RUNNING: Final = "GuestNotRunning"
CONTAINERS_NOT_READY: Final = "ContainersNotReady"
POD_TERMINATING: Final = "PodTerminating"
ERR_IMAGE_PULL: Final = "ErrImagePull"
IMAGE_PULL_BACK_OFF: Final = "ImagePullBackOff"
PVC_NOT_FOUND: Final = "FailedPvcNotFound"
UNSCHEDULABLE: Final = "Unschedulable"
READINESS_GATES_NOT_READY: Final = "ReadinessGatesNotReady"
PAUSED_BY_USER: Final = "PausedByUser"
PAUSED_IO_ERROR: Final = "PausedIOError"


class PhaseTransition(Struct, frozen=True, rename="camel"):
    phase: str | None = None
    phase_transition_timestamp: datetime | None = None


class CpuTopology(Struct, frozen=True, omit_defaults=True):
    cores: int = 0
    sockets: int = 0
    threads: int = 0


class Memory(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The field `status.memory`. The quantities are sizes of the guest's memory."""

    guest_at_boot: str | None = None
    guest_current: str | None = None
    guest_requested: str | None = None
    memory_overhead: str | None = None


class VMIStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The fields of a VMI's status that the simulator reads."""

    phase: str | None = None
    node_name: str | None = None
    conditions: tuple[Condition, ...] | None = None
    phase_transition_timestamps: tuple[PhaseTransition, ...] | None = None
    active_pods: Mapping[str, str] | None = None
    qos_class: str | None = None
    runtime_user: int | None = None
    virtual_machine_revision_name: str | None = None
    current_cpu_topology: CpuTopology | None = msgspec.field(name="currentCPUTopology", default=None)
    memory: Memory | None = None


class _DataVolumeSource(Struct, frozen=True):
    name: str | None = None


class _ClaimSource(Struct, frozen=True, rename="camel"):
    claim_name: str | None = None


class Volume(Struct, frozen=True, rename="camel"):
    """One volume of a VMI. The simulator reads only DataVolumes and PVCs, not other volume sources."""

    name: str = ""
    data_volume: _DataVolumeSource | None = None
    persistent_volume_claim: _ClaimSource | None = None

    @property
    def claim(self) -> str:
        """Return the name of the volume's PVC, or "" if the volume needs no PVC.

        The PVC of a DataVolume has the name of the DataVolume.
        """
        if self.data_volume is not None:
            return self.data_volume.name or ""
        return (self.persistent_volume_claim.claim_name or "") if self.persistent_volume_claim is not None else ""


class Cpu(Struct, frozen=True, rename="camel"):
    cores: int | None = None
    sockets: int | None = None
    threads: int | None = None
    max_sockets: int | None = None


class GuestMemory(Struct, frozen=True, rename="camel"):
    guest: str | int | float | None = None
    max_guest: str | int | float | None = None


class Devices(Struct, frozen=True, rename="camel"):
    interfaces: tuple[Mapping[str, Any], ...] | None = None
    autoattach_pod_interface: bool | None = None


class Domain(Struct, frozen=True):
    cpu: Cpu | None = None
    memory: GuestMemory | None = None
    devices: Devices | None = None


_decode_domain: Final = msgspec.json.Decoder(Domain | None).decode


class VMISpec(Struct, frozen=True, rename="camel"):
    termination_grace_period_seconds: int | None = None
    volumes: tuple[Volume, ...] | None = None
    domain: Raw = Raw(b"{}")
    networks: Any = None
    node_selector: Any = None
    affinity: Any = None
    tolerations: Any = None


class SimulatedVMI(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: VMISpec | None = None
    status: VMIStatus | None = None
    placement: str = ""
    """The node for the VMI, or "" if the simulator may choose any node. The field is not stored in the cluster."""

    has_pod: bool = False
    """True if the simulator creates a Pod for the VMI. The field is not stored in the cluster."""


VMIS: Final = Resource(
    SimulatedVMI, group="kubevirt.io", version="v1", plural="virtualmachineinstances", kind="VirtualMachineInstance"
)


class VMIState(Struct, frozen=True):
    """The visible state of a VMI. The VMI is ready if `unready_reason` is empty.

    `problem` is the reason why the VMI cannot start or is paused, or "". If no node is suitable, the reason is in the
    condition PodScheduled=False. The reason of a pause is in the condition Paused=True. Any other reason is in the
    condition Synchronized=False.
    """

    phase: str
    unready_reason: str = ""
    problem: str = ""


def status_of(vmi: SimulatedVMI) -> VMIStatus:
    return vmi.status or VMIStatus()


def phase_of(vmi: SimulatedVMI) -> str:
    return (vmi.status.phase or "") if vmi.status is not None else ""


def is_final(vmi: SimulatedVMI) -> bool:
    return phase_of(vmi) in FINAL_PHASES


def is_terminating(vmi: SimulatedVMI) -> bool:
    return vmi.metadata.deletion_timestamp is not None


def domain_of(vmi: SimulatedVMI) -> Domain:
    return decode_domain(vmi.spec.domain) if vmi.spec is not None else Domain()


def decode_domain(domain: Raw) -> Domain:
    """Return the decoded domain, or an empty domain if the domain is invalid."""
    try:
        return _decode_domain(domain) or Domain()
    except msgspec.DecodeError:
        return Domain()


def volumes_of(vmi: SimulatedVMI) -> tuple[Volume, ...]:
    return (vmi.spec.volumes or ()) if vmi.spec is not None else ()


def grace_period_of(vmi: SimulatedVMI) -> int:
    """Return the grace period for the shutdown of the guest in seconds, or 0 if the spec has no value."""
    return (vmi.spec.termination_grace_period_seconds or 0) if vmi.spec is not None else 0


def claims_of(vmi: SimulatedVMI) -> tuple[str, ...]:
    """Return the names of the PVCs that the VMI needs, without duplicates."""
    return tuple(dict.fromkeys(volume.claim for volume in volumes_of(vmi) if volume.claim))


def conditions_of(vmi: SimulatedVMI) -> tuple[Condition, ...]:
    return (vmi.status.conditions or ()) if vmi.status is not None else ()


def condition_of(vmi: SimulatedVMI, type_: str) -> Condition | None:
    return find(conditions_of(vmi), type_)


def history_of(vmi: SimulatedVMI) -> tuple[PhaseTransition, ...]:
    """Return the phase changes of the VMI with their times. The first entry is the oldest change."""
    return (vmi.status.phase_transition_timestamps or ()) if vmi.status is not None else ()


def has_run(vmi: SimulatedVMI) -> bool:
    """Return True if the VMI was ever in the phase Running."""
    return any(transition.phase == "Running" for transition in history_of(vmi))


def finalizers_of(vmi: SimulatedVMI) -> tuple[str, ...]:
    return vmi.metadata.finalizers or ()


def has_finalizer(vmi: SimulatedVMI, name: str = FINALIZER) -> bool:
    return name in finalizers_of(vmi)


def is_observed(meta: ObjectMeta) -> bool:
    """Return True if the object has the annotations `OBSERVED_VERSIONS` with their values."""
    annotations = annotations_of(meta)
    return all(annotations.get(name) == version for name, version in OBSERVED_VERSIONS.items())


def state_of(vmi: SimulatedVMI) -> VMIState | None:
    """Return the current state of the VMI, or None if the VMI has no phase yet."""
    ready = condition_of(vmi, "Ready")
    if ready is None:
        return VMIState(phase_of(vmi), CONDITION_MISSING, problem_of(vmi)) if phase_of(vmi) else None
    return VMIState(phase_of(vmi), "" if ready.status == "True" else ready.reason or ready.status, problem_of(vmi))


def is_paused(vmi: SimulatedVMI) -> bool:
    condition = condition_of(vmi, "Paused")
    return condition is not None and condition.status == "True"


def problem_of(vmi: SimulatedVMI) -> str:
    for type_, status in (("Synchronized", "False"), ("PodScheduled", "False"), ("Paused", "True")):
        condition = condition_of(vmi, type_)
        if condition is not None and condition.status == status:
            return condition.reason or ""
    return ""


def node_for(vmi: SimulatedVMI) -> str:
    """Return the name of the VMI's node: its field `placement`, or else a node that depends only on the VMI's UID.

    All nodes get about the same number of VMIs.
    """
    return vmi.placement or NODES[_number(vmi) % len(NODES)]


def address_for(vmi: SimulatedVMI) -> str:
    number = _number(vmi)
    return f"10.{number >> 24}.{number >> 16 & 255}.{(number & 0xFFFF) % 254 + 1}"


def _number(vmi: SimulatedVMI) -> int:
    """Return a number that depends only on the VMI's UID.

    The node and the address of a VMI are computed from this number.
    """
    return crc32(vmi.metadata.uid.encode())
