"""This module defines the fields of a VirtualMachineInstance that the simulator reads, and reads the VMI's state."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final
from zlib import crc32

import msgspec
from msgspec import Raw, Struct

from controller.apimachinery.conditions import Condition, find_condition
from controller.kubevirt import vm_types
from controller.kubevirt.vmi_types import PhaseTransition
from informers.meta import ObjectMeta, annotations_of
from informers.resource import Resource

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
FINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})


class Reason(StrEnum):
    """The reasons in conditions, or in place of Ready: it is missing, or False without a reason (`NO_ANSWER`)."""

    CONDITION_MISSING = "VMIConditionMissing"
    NO_ANSWER = "False"
    POD_NOT_EXISTS = "PodNotExists"
    GUEST_NOT_RUNNING = "GuestNotRunning"
    CONTAINERS_NOT_READY = "ContainersNotReady"
    POD_TERMINATING = "PodTerminating"
    ERR_IMAGE_PULL = "ErrImagePull"
    IMAGE_PULL_BACK_OFF = "ImagePullBackOff"
    PVC_NOT_FOUND = "FailedPvcNotFound"
    UNSCHEDULABLE = "Unschedulable"
    READINESS_GATES_NOT_READY = "ReadinessGatesNotReady"
    PAUSED_BY_USER = "PausedByUser"
    PAUSED_IO_ERROR = "PausedIOError"


class Cpu(Struct, frozen=True, rename="camel"):
    cores: int | None = None
    sockets: int | None = None
    threads: int | None = None
    max_sockets: int | None = None


class CpuTopology(Struct, frozen=True, omit_defaults=True):
    cores: int = 0
    sockets: int = 0
    threads: int = 0

    @classmethod
    def of(cls, cpu: Cpu | None) -> "CpuTopology":
        cpu = cpu or Cpu()
        return cls(cores=cpu.cores or 1, sockets=cpu.sockets or 1, threads=cpu.threads or 1)


class Memory(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The field `status.memory`. The quantities are sizes of the guest's memory."""

    guest_at_boot: str | None = None
    guest_current: str | None = None
    guest_requested: str | None = None


class VMIStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
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
    interfaces: tuple[Mapping[str, Any], ...] | None = None
    evacuation_node_name: str | None = None
    migration_state: Mapping[str, Any] | None = None


class Volume(vm_types.Volume, frozen=True, rename="camel"):
    name: str = ""

    @property
    def claim(self) -> str:
        """The name of the volume's PVC, which is that of a DataVolume too, or "" if the volume needs none."""
        if self.data_volume is not None:
            return self.data_volume.name or ""
        return (self.persistent_volume_claim.claim_name or "") if self.persistent_volume_claim is not None else ""


class GuestMemory(Struct, frozen=True, rename="camel"):
    guest: str | int | float | None = None
    max_guest: str | int | float | None = None


class Devices(Struct, frozen=True, rename="camel"):
    interfaces: tuple[Mapping[str, Any], ...] | None = None
    autoattach_pod_interface: bool | None = None


class Resources(Struct, frozen=True):
    requests: Mapping[str, Any] | None = None


class Domain(Struct, frozen=True):
    cpu: Cpu | None = None
    memory: GuestMemory | None = None
    devices: Devices | None = None
    resources: Resources | None = None


_decode_domain: Final = msgspec.json.Decoder(Domain | None).decode


class VMISpec(Struct, frozen=True, rename="camel"):
    termination_grace_period_seconds: int | None = None
    volumes: tuple[Volume, ...] | None = None
    domain: Raw = Raw(b"{}")
    node_selector: Any = None
    affinity: Any = None
    tolerations: Any = None
    hostname: str | None = None
    subdomain: str | None = None


class VMIState(Struct, frozen=True):
    """The visible state of a VMI. It is ready if `unready_reason` is empty.

    `problem` is the reason why the VMI cannot start or is paused, or "": it is in the condition PodScheduled=False if
    no node is suitable, in Paused=True during a pause, and else in Synchronized=False.
    """

    phase: str
    unready_reason: str = ""
    problem: str = ""


class SimulatedVMI(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: VMISpec = VMISpec()
    status: VMIStatus = VMIStatus()
    placement: str = ""
    """The node for the VMI, or "" if the simulator may choose any node. The field is not stored in the cluster."""

    has_pod: bool = False
    """True if the simulator creates a Pod for the VMI. The field is not stored in the cluster."""

    @property
    def phase(self) -> str:
        return self.status.phase or ""

    @property
    def node(self) -> str:
        return self.status.node_name or ""

    @property
    def is_final(self) -> bool:
        return self.phase in FINAL_PHASES

    @property
    def is_terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def is_active(self) -> bool:
        return not self.is_final and not self.is_terminating

    @property
    def domain(self) -> Domain:
        return decode_domain(self.spec.domain)

    @property
    def volumes(self) -> tuple[Volume, ...]:
        return self.spec.volumes or ()

    @property
    def storage(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(volume.claim for volume in self.volumes if volume.claim))

    @property
    def finalizers(self) -> tuple[str, ...]:
        return self.metadata.finalizers or ()

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return self.status.conditions or ()

    def condition(self, type_: str) -> Condition | None:
        return find_condition(self.conditions, type_)

    def has(self, type_: str, status: str = "True") -> bool:
        condition = self.condition(type_)
        return condition is not None and condition.status == status

    @property
    def history(self) -> tuple[PhaseTransition, ...]:
        return self.status.phase_transition_timestamps or ()

    @property
    def has_run(self) -> bool:
        return any(transition.phase == "Running" for transition in self.history)

    @property
    def migration(self) -> Mapping[str, Any]:
        return self.status.migration_state or {}

    @property
    def is_migrating(self) -> bool:
        return bool(self.migration) and not self.migration.get("endTimestamp")

    @property
    def problem(self) -> str:
        for type_, status in (("Synchronized", "False"), ("PodScheduled", "False"), ("Paused", "True")):
            if self.has(type_, status) and (condition := self.condition(type_)):
                return condition.reason or ""
        return ""

    @property
    def state(self) -> VMIState | None:
        ready = self.condition("Ready")
        if ready is None:
            return VMIState(self.phase, Reason.CONDITION_MISSING, self.problem) if self.phase else None
        return VMIState(self.phase, "" if ready.status == "True" else ready.reason or ready.status, self.problem)


VMIS: Final = Resource(
    SimulatedVMI, group="kubevirt.io", version="v1", plural="virtualmachineinstances", kind="VirtualMachineInstance"
)


def decode_domain(domain: Raw) -> Domain:
    try:
        return _decode_domain(domain) or Domain()
    except msgspec.DecodeError:
        return Domain()


def is_observed(meta: ObjectMeta) -> bool:
    return OBSERVED_VERSIONS.items() <= annotations_of(meta).items()


def final_phase(phase: str) -> str:
    """Return the final phase of a VMI that is shut down in this phase: Failed if the guest never ran."""
    if phase in FINAL_PHASES:
        return phase
    return "Succeeded" if phase in ("Running", "Unknown") else "Failed"


def node_for(vmi: SimulatedVMI) -> str:
    """Return the name of the VMI's node: its field `placement`, or else one that depends only on its UID."""
    return vmi.placement or NODES[_number(vmi) % len(NODES)]


def address_for(vmi: SimulatedVMI) -> str:
    number = _number(vmi)
    return f"10.{number >> 24}.{number >> 16 & 255}.{(number & 0xFFFF) % 254 + 1}"


def _number(vmi: SimulatedVMI) -> int:
    return crc32(vmi.metadata.uid.encode())
