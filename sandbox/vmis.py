"""This module defines the fields of a VirtualMachineInstance that the simulator reads, and builds the patches.

KubeVirt's VMIs have no status subresource, so a patch of the status is sent to the object itself. A patch contains the
complete list of conditions, because a JSON merge patch replaces lists.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final
from zlib import crc32

import msgspec
from msgspec import Struct

from informers.meta import ObjectMeta
from informers.resource import Resource
from sandbox.step import Patch

FINALIZER: Final = "kubevirt.io/foregroundDeleteVirtualMachine"
"""The finalizer that KubeVirt adds to VMIs. The simulator adds the finalizer only to VMIs with a slow shutdown.

A VMI without a finalizer no longer exists immediately after its deletion.
"""

NODE_LABEL: Final = "kubevirt.io/nodeName"
NODES: Final = ("node01", "node02", "node03", "node04", "node05")

UNSCHEDULED_PHASES: Final = frozenset({"", "Pending", "Scheduling"})
"""The phases of a VMI that has no node yet."""

FINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})

POD_NOT_EXISTS: Final = "PodNotExists"
GUEST_NOT_RUNNING: Final = "GuestNotRunning"
CONTAINERS_NOT_READY: Final = "ContainersNotReady"
POD_TERMINATING: Final = "PodTerminating"
ERR_IMAGE_PULL: Final = "ErrImagePull"
IMAGE_PULL_BACK_OFF: Final = "ImagePullBackOff"
PVC_NOT_FOUND: Final = "FailedPvcNotFound"
UNSCHEDULABLE: Final = "Unschedulable"

_MESSAGES: Final = {
    POD_NOT_EXISTS: "virt-launcher pod has not yet been scheduled",
    GUEST_NOT_RUNNING: "Guest VM is not reported as running",
    CONTAINERS_NOT_READY: "containers with unready_reason status: [compute]",
    POD_TERMINATING: "virt-launcher pod is terminating",
    ERR_IMAGE_PULL: "rpc error: code = NotFound desc = failed to pull and unpack image: not found",
    IMAGE_PULL_BACK_OFF: "Back-off pulling image",
    PVC_NOT_FOUND: "a PVC that the volumes name does not exist, waiting for it to appear",
    UNSCHEDULABLE: "0/5 nodes are available: 5 Insufficient memory",
}


class Condition(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_probe_time: datetime | None = None
    last_transition_time: datetime | None = None


class PhaseTransition(Struct, frozen=True, rename="camel"):
    phase: str | None = None
    phase_transition_timestamp: datetime | None = None


class Interface(Struct, frozen=True, rename="camel"):
    name: str
    ip_address: str
    ip_addresses: tuple[str, ...]


class VMIStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The status of a VMI. If a field is None, a patch does not contain the field and the stored value stays."""

    phase: str | None = None
    node_name: str | None = None
    conditions: tuple[Condition, ...] | None = None
    interfaces: tuple[Interface, ...] | None = None
    phase_transition_timestamps: tuple[PhaseTransition, ...] | None = None


class _DataVolumeSource(Struct, frozen=True):
    name: str | None = None


class _ClaimSource(Struct, frozen=True, rename="camel"):
    claim_name: str | None = None


class Volume(Struct, frozen=True, rename="camel"):
    """One volume of a VMI. A volume that is neither a DataVolume nor a PVC is always available."""

    data_volume: _DataVolumeSource | None = None
    persistent_volume_claim: _ClaimSource | None = None

    @property
    def claim(self) -> str:
        """Return the name of the PVC that the volume needs, or "" if the volume needs no PVC.

        The PVC of a DataVolume has the name of the DataVolume.
        """
        if self.data_volume is not None:
            return self.data_volume.name or ""
        return (self.persistent_volume_claim.claim_name or "") if self.persistent_volume_claim is not None else ""


class VMISpec(Struct, frozen=True, rename="camel"):
    termination_grace_period_seconds: int | None = None
    volumes: tuple[Volume, ...] | None = None


class SimulatedVMI(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: VMISpec | None = None
    status: VMIStatus | None = None


VMIS: Final = Resource(
    SimulatedVMI, group="kubevirt.io", version="v1", plural="virtualmachineinstances", kind="VirtualMachineInstance"
)


class VMIState(Struct, frozen=True):
    """The visible state of a VMI. The VMI is ready if `unready_reason` is empty.

    `problem` is the reason in the condition Synchronized=False if KubeVirt cannot start the VMI, or the reason in the
    condition PodScheduled=False if no node is suitable for the VMI. `problem` is empty if there is no problem.
    """

    phase: str
    unready_reason: str = ""
    problem: str = ""


class _Meta(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    uid: str
    resource_version: str | None = None
    finalizers: tuple[str, ...] | None = None
    labels: dict[str, str] | None = None


class _Body(Struct, frozen=True, omit_defaults=True):
    metadata: _Meta
    status: VMIStatus | None = None


_encode = msgspec.json.Encoder().encode


def phase_of(vmi: SimulatedVMI) -> str:
    return (vmi.status.phase or "") if vmi.status is not None else ""


def grace_period_of(vmi: SimulatedVMI) -> int:
    """Return the seconds after which a guest that does not shut down is killed, or 0 if the spec has no value."""
    return (vmi.spec.termination_grace_period_seconds or 0) if vmi.spec is not None else 0


def claims_of(vmi: SimulatedVMI) -> tuple[str, ...]:
    """Return the names of the PVCs that the VMI needs, without duplicates."""
    volumes = (vmi.spec.volumes or ()) if vmi.spec is not None else ()
    return tuple(dict.fromkeys(volume.claim for volume in volumes if volume.claim))


def condition_of(vmi: SimulatedVMI, type_: str) -> Condition | None:
    for condition in (vmi.status.conditions or ()) if vmi.status is not None else ():
        if condition.type == type_:
            return condition
    return None


def history_of(vmi: SimulatedVMI) -> tuple[PhaseTransition, ...]:
    """Return the phase changes of the VMI with their times. The first entry is the oldest change."""
    return (vmi.status.phase_transition_timestamps or ()) if vmi.status is not None else ()


def has_finalizer(vmi: SimulatedVMI) -> bool:
    """Return True if the VMI has the finalizer. A deleted VMI exists until the simulator has removed the finalizer."""
    return FINALIZER in (vmi.metadata.finalizers or ())


def state_of(vmi: SimulatedVMI) -> VMIState | None:
    """Return the current state of the VMI, or None if the VMI has no Ready condition yet."""
    ready = condition_of(vmi, "Ready")
    if ready is None:
        return None
    return VMIState(phase_of(vmi), "" if ready.status == "True" else ready.reason or ready.status, problem_of(vmi))


def problem_of(vmi: SimulatedVMI) -> str:
    for type_ in ("Synchronized", "PodScheduled"):
        condition = condition_of(vmi, type_)
        if condition is not None and condition.status == "False":
            return condition.reason or ""
    return ""


def node_for(vmi: SimulatedVMI) -> str:
    """Return the name of the VMI's node. The node depends only on the VMI's UID.

    All nodes get about the same number of VMIs.
    """
    return NODES[_number(vmi) % len(NODES)]


def address_for(vmi: SimulatedVMI) -> str:
    number = _number(vmi)
    return f"10.{number >> 24}.{number >> 16 & 255}.{(number & 0xFFFF) % 254 + 1}"


def state_patch(
    state: VMIState,
    vmi: SimulatedVMI,
    *,
    now: datetime,
    unseen: Iterable[PhaseTransition] = (),
    finalizer: bool | None = None,
) -> Patch:
    """Return the patch that writes this state to the VMI.

    `unseen` are earlier phases that were not written. The patch adds these phases to the phase history. The patch adds
    the finalizer if `finalizer` is True, and removes the finalizer if `finalizer` is False. A patch that changes the
    finalizers replaces the whole list of finalizers, so the API server rejects this patch if the VMI's resource version
    has changed.
    """
    placed = state.phase not in UNSCHEDULED_PHASES
    history = history_of(vmi)
    if phase_of(vmi) != state.phase:
        history = (*history, *unseen, PhaseTransition(state.phase, now))
    status = VMIStatus(
        phase=state.phase,
        node_name=node_for(vmi) if placed else None,
        conditions=_conditions(state, vmi, now),
        interfaces=(_interface(vmi),) if state.phase == "Running" else None,
        phase_transition_timestamps=history,
    )
    return Patch(_encode(_Body(_metadata(vmi, labelled=placed, finalizer=finalizer), status)))


def finalizer_patch(vmi: SimulatedVMI, *, finalizer: bool) -> Patch:
    """Return the patch that adds the finalizer if `finalizer` is True, and otherwise removes the finalizer."""
    return Patch(_encode(_Body(_metadata(vmi, labelled=False, finalizer=finalizer))))


def _metadata(vmi: SimulatedVMI, *, labelled: bool, finalizer: bool | None) -> _Meta:
    meta = vmi.metadata
    labels = {NODE_LABEL: node_for(vmi)} if labelled else None
    if finalizer is None or finalizer == has_finalizer(vmi):
        return _Meta(uid=meta.uid, labels=labels)
    others = tuple(name for name in meta.finalizers or () if name != FINALIZER)
    return _Meta(
        uid=meta.uid,
        resource_version=meta.resource_version,
        finalizers=(*others, FINALIZER) if finalizer else others,
        labels=labels,
    )


def _conditions(state: VMIState, vmi: SimulatedVMI, now: datetime) -> tuple[Condition, ...]:
    conditions = [
        _condition("Ready", vmi, now, status="False" if state.unready_reason else "True", reason=state.unready_reason)
    ]
    if state.phase == "Running":
        conditions.append(_condition("LiveMigratable", vmi, now, status="True"))
    if state.problem:
        type_ = "PodScheduled" if state.problem == UNSCHEDULABLE else "Synchronized"
        conditions.append(_condition(type_, vmi, now, status="False", reason=state.problem))
    return tuple(conditions)


def _condition(type_: str, vmi: SimulatedVMI, now: datetime, *, status: str, reason: str = "") -> Condition:
    """Return the condition with this status and reason.

    The transition time of the condition is the time when its status last changed. The probe time is the time when its
    status or its reason last changed.
    """
    before = condition_of(vmi, type_)
    kept = before if before is not None and before.status == status else Condition()
    since = kept.last_transition_time or now
    same = kept.status == status and (kept.reason or "") == reason
    return Condition(
        type=type_,
        status=status,
        reason=reason or None,
        message=_MESSAGES.get(reason),
        last_probe_time=(kept.last_probe_time or since) if same else now,
        last_transition_time=since,
    )


def _interface(vmi: SimulatedVMI) -> Interface:
    address = address_for(vmi)
    return Interface("default", address, (address,))


def _number(vmi: SimulatedVMI) -> int:
    """Return a number that depends only on the VMI's UID.

    With this number, a VMI always gets the same node and the same address, and the simulator stores neither of them.
    """
    return crc32(vmi.metadata.uid.encode())
