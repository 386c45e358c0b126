"""A simulated VirtualMachineInstance on the wire: what the simulator reads of it, and what KubeVirt would write.

KubeVirt's VMIs have no status subresource: their status is patched on the object itself. A patch carries the whole of
what it says about conditions, since a JSON merge patch replaces lists.
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
"""KubeVirt's own. It keeps a VMI that shuts down slowly; the API server removes any other the moment it is deleted."""

NODE_LABEL: Final = "kubevirt.io/nodeName"
NODES: Final = ("node01", "node02", "node03", "node04", "node05")

UNPLACED: Final = frozenset({"", "Pending", "Scheduling"})
"""The phases in which it has no node yet."""

FINAL: Final = frozenset({"Succeeded", "Failed"})

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
    CONTAINERS_NOT_READY: "containers with unready status: [compute]",
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
    """Read and written. What is None in a patch stays as it is."""

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
    """One volume of a VMI. What is no DataVolume and no PVC is always there."""

    data_volume: _DataVolumeSource | None = None
    persistent_volume_claim: _ClaimSource | None = None

    @property
    def claim(self) -> str:
        """The PVC that it needs; "" for none. A DataVolume's has the name of the DataVolume."""
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


class Look(Struct, frozen=True):
    """How a VMI looks from outside. It is ready where `unready` gives no reason against it.

    `trouble` is the reason why KubeVirt cannot bring it to what it should be (condition Synchronized), or why it finds
    no node for it (condition PodScheduled).
    """

    phase: str
    unready: str = ""
    trouble: str = ""


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


def grace_of(vmi: SimulatedVMI) -> int:
    """The seconds after which a guest that does not shut down is killed; 0 where nothing is said."""
    return (vmi.spec.termination_grace_period_seconds or 0) if vmi.spec is not None else 0


def claims_of(vmi: SimulatedVMI) -> tuple[str, ...]:
    """The PVCs that it needs, each once."""
    volumes = (vmi.spec.volumes or ()) if vmi.spec is not None else ()
    return tuple(dict.fromkeys(volume.claim for volume in volumes if volume.claim))


def condition_of(vmi: SimulatedVMI, type_: str) -> Condition | None:
    for condition in (vmi.status.conditions or ()) if vmi.status is not None else ():
        if condition.type == type_:
            return condition
    return None


def history_of(vmi: SimulatedVMI) -> tuple[PhaseTransition, ...]:
    """When it came into each phase, oldest first."""
    return (vmi.status.phase_transition_timestamps or ()) if vmi.status is not None else ()


def holds_on(vmi: SimulatedVMI) -> bool:
    """Whether our finalizer is on it, so that its deletion waits for us."""
    return FINALIZER in (vmi.metadata.finalizers or ())


def look_of(vmi: SimulatedVMI) -> Look | None:
    """How it looks; None for one that has no Ready condition yet."""
    ready = condition_of(vmi, "Ready")
    if ready is None:
        return None
    return Look(phase_of(vmi), "" if ready.status == "True" else ready.reason or ready.status, trouble_of(vmi))


def trouble_of(vmi: SimulatedVMI) -> str:
    for type_ in ("Synchronized", "PodScheduled"):
        condition = condition_of(vmi, type_)
        if condition is not None and condition.status == "False":
            return condition.reason or ""
    return ""


def node_for(vmi: SimulatedVMI) -> str:
    """The node it is scheduled to: always the same for the same VMI, and evenly spread over many."""
    return NODES[_number(vmi) % len(NODES)]


def address_for(vmi: SimulatedVMI) -> str:
    number = _number(vmi)
    return f"10.{number >> 24}.{number >> 16 & 255}.{(number & 0xFFFF) % 254 + 1}"


def change_to(
    look: Look, vmi: SimulatedVMI, *, now: datetime, passed: Iterable[PhaseTransition] = (), hold: bool | None = None
) -> Patch:
    """The patch after which the VMI looks like this.

    `passed` are phases that it went through unseen. `hold=True` puts our finalizer on it, `hold=False` takes it off; a
    list of finalizers is replaced as a whole, so such a patch is only taken by the version of the VMI that was read.
    """
    placed = look.phase not in UNPLACED
    history = history_of(vmi)
    if phase_of(vmi) != look.phase:
        history = (*history, *passed, PhaseTransition(look.phase, now))
    status = VMIStatus(
        phase=look.phase,
        node_name=node_for(vmi) if placed else None,
        conditions=_conditions(look, vmi, now),
        interfaces=(_interface(vmi),) if look.phase == "Running" else None,
        phase_transition_timestamps=history,
    )
    return Patch(_encode(_Body(_metadata(vmi, labelled=placed, hold=hold), status)))


def change_hold(vmi: SimulatedVMI, *, hold: bool) -> Patch:
    """Put our finalizer on it, or take it off, and leave the rest."""
    return Patch(_encode(_Body(_metadata(vmi, labelled=False, hold=hold))))


def _metadata(vmi: SimulatedVMI, *, labelled: bool, hold: bool | None) -> _Meta:
    meta = vmi.metadata
    labels = {NODE_LABEL: node_for(vmi)} if labelled else None
    if hold is None or hold == holds_on(vmi):
        return _Meta(uid=meta.uid, labels=labels)
    others = tuple(name for name in meta.finalizers or () if name != FINALIZER)
    return _Meta(
        uid=meta.uid,
        resource_version=meta.resource_version,
        finalizers=(*others, FINALIZER) if hold else others,
        labels=labels,
    )


def _conditions(look: Look, vmi: SimulatedVMI, now: datetime) -> tuple[Condition, ...]:
    conditions = [_condition("Ready", vmi, now, status="False" if look.unready else "True", reason=look.unready)]
    if look.phase == "Running":
        conditions.append(_condition("LiveMigratable", vmi, now, status="True"))
    if look.trouble:
        blames = "PodScheduled" if look.trouble == UNSCHEDULABLE else "Synchronized"
        conditions.append(_condition(blames, vmi, now, status="False", reason=look.trouble))
    return tuple(conditions)


def _condition(type_: str, vmi: SimulatedVMI, now: datetime, *, status: str, reason: str = "") -> Condition:
    """The condition as it is now. Its transition is when its status last changed, its probe when anything of it did."""
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
    """Made-up facts hang on the UID, so that they stay the same without anybody remembering them."""
    return crc32(vmi.metadata.uid.encode())
