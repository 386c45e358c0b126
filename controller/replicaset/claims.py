"""Whose VMIs they are to be: orphans to adopt and members to let go (R2)."""

from __future__ import annotations

from msgspec import Struct

from controller.apimachinery.label_selectors import Selector
from controller.apimachinery.owner_references import adoption_patch, controller_reference, release_patch
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicaset.snapshot import Snapshot
from controller.runtime.plan import Confirm, Patch, Plan, Stage
from informers.meta import ObjectMeta, labels_of
from informers.objects import PatchType


class Claims(Struct, frozen=True):
    """Members that stay, orphans that come, members that go."""

    kept: tuple[VirtualMachineInstance, ...]
    adopted: tuple[VirtualMachineInstance, ...]
    released: tuple[VirtualMachineInstance, ...]


def choose_claims(snapshot: Snapshot, selector: Selector) -> Claims:
    """Sort members and orphans by whether the selector wants them.

    One that is being deleted is neither adopted nor released: it is on its way out either way.
    """
    kept, released = [], []
    for vmi in snapshot.members:
        if selector.matches(labels_of(vmi.metadata)) or vmi.metadata.deletion_timestamp is not None:
            kept.append(vmi)
        else:
            released.append(vmi)
    adopted = [
        vmi
        for vmi in snapshot.orphans
        if vmi.metadata.deletion_timestamp is None and selector.matches(labels_of(vmi.metadata))
    ]
    return Claims(tuple(kept), _by_name(adopted), _by_name(released))


def plan_claims(snapshot: Snapshot, claims: Claims) -> Plan:
    """Adopt and release. Nothing is adopted before the server has confirmed that the set still is who it was."""
    owner = snapshot.owner.metadata
    reference = controller_reference(snapshot.replicasets, owner)
    patches = [
        _patch(snapshot, vmi.metadata, adoption_patch(vmi.metadata, reference), "an orphan that the selector matches")
        for vmi in claims.adopted
    ]
    patches += [
        _patch(snapshot, vmi.metadata, release_patch(vmi.metadata, owner.uid), "its labels no longer match")
        for vmi in claims.released
    ]
    stages = []
    if claims.adopted:
        why = f"before adopting {len(claims.adopted)}"
        stages.append(Stage((Confirm(resource=snapshot.replicasets, key=owner.key, uid=owner.uid, why=why),)))
    if patches:
        stages.append(Stage(tuple(patches)))
    return Plan(stages=tuple(stages))


def _patch(snapshot: Snapshot, child: ObjectMeta, body: bytes, why: str) -> Patch:
    return Patch(resource=snapshot.vmis, key=child.key, body=body, type=PatchType.MERGE, why=why)


def _by_name(vmis: list[VirtualMachineInstance]) -> tuple[VirtualMachineInstance, ...]:
    return tuple(sorted(vmis, key=lambda vmi: vmi.metadata.name))
