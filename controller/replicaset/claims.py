"""The rules for the adoption and the release of VMIs by a replica set (R2).

A VMI that is released loses what vmherd has noted on it. A *stray* is an orphan that still has such notes: a user has
removed the ownerReference, or has deleted the set with `--cascade=orphan`. If no set adopts it, it loses the notes too.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.label_selectors import Selector
from controller.apimachinery.owner_references import adoption_patch, controller_reference, release_patch
from controller.kubevirt.annotations import IN_SERVICE, own_notes
from controller.kubevirt.resources import VMIS
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_deleting
from controller.replicas.conditions import counted
from controller.replicas.draining import guest_of_vmi
from controller.replicas.releases import Releases, choose_releases, plan_row
from controller.replicaset.intent import Intent
from controller.replicaset.snapshot import Snapshot, former_set_of_vmi
from controller.replicaset.traits import VMIs, split_by_selector
from controller.runtime.actions import Confirm, Patch, Plan, join, stage_of, waiting
from controller.runtime.members.groups import by_name
from informers.meta import ObjectKey, labels_of
from informers.objects import PatchType


class Claims(Struct, frozen=True):
    kept: VMIs
    adopted: tuple[VirtualMachineInstance, ...]
    releases: Releases[VirtualMachineInstance]


def choose_claims(snapshot: Snapshot, intent: Intent) -> Claims:
    """Separate the VMIs by their labels. One that is being deleted is neither adopted nor released."""
    selector = intent.selector
    kept, strange = split_by_selector(snapshot.members, selector)
    releases = choose_releases(snapshot.owner.metadata, strange, kept, intent.replicas, snapshot.now)
    adopted = [
        vmi
        for vmi in snapshot.orphans
        if vmi.metadata.deletion_timestamp is None and selector.matches(labels_of(vmi.metadata))
    ]
    return Claims(kept, tuple(by_name(adopted)), releases)


def plan_claims(snapshot: Snapshot, selector: Selector, claims: Claims) -> Plan:
    """Plan at most `burst` adoptions, each after the API server has confirmed the set, and the releases."""
    owner = snapshot.owner.metadata
    reference = controller_reference(snapshot.replicasets, owner)
    patches = [
        _patch(vmi, adoption_patch(vmi.metadata, reference), "the selector matches this orphan")
        for vmi in claims.adopted[: snapshot.burst]
    ]
    strays = [vmi for vmi in strays_of(owner.key, snapshot.orphans) if not selector.matches(labels_of(vmi.metadata))]
    patches += release((*claims.releases.now, *strays), selector, owner.uid)
    why = "confirm the owner before it adopts VMIs"
    confirm = Confirm(resource=snapshot.replicasets, key=owner.key, uid=owner.uid, why=why)
    stages = (*stage_of([confirm] if claims.adopted else [], essential=True), *stage_of(patches, essential=True))
    left = len(claims.adopted) - snapshot.burst
    claimed = replace(
        waiting(counted(left, "more adoption waits", "more adoptions wait") if left > 0 else ""), stages=stages
    )
    return join((plan_row(snapshot.replicasets, owner, claims.releases, selector, snapshot.now), claimed))


def strays_of(key: ObjectKey, orphans: Iterable[VirtualMachineInstance]) -> Iterator[VirtualMachineInstance]:
    """Yield the orphans with notes of vmherd whose names say that the set `key` created them."""
    return (vmi for vmi in orphans if not is_deleting(vmi) and key in former_set_of_vmi(vmi))


def release(vmis: Iterable[VirtualMachineInstance], selector: Selector, owner_uid: str) -> Iterator[Patch]:
    """Remove the owner and vmherd's notes. The label of a drain stays if the selector reads it: vmherd kept it then."""
    for vmi in vmis:
        meta = vmi.metadata
        changes: dict[str, object] = {"annotations": dict.fromkeys(notes)} if (notes := own_notes(meta)) else {}
        # A policy may have stripped the mark of the drain, and not its label.
        if labels_of(meta).get(IN_SERVICE) == "false" and guest_of_vmi(selector, vmi).has_label:
            changes["labels"] = {IN_SERVICE: "true"}
        yield _patch(vmi, release_patch(meta, owner_uid, changes), "its labels no longer match the selector")


def _patch(vmi: VirtualMachineInstance, body: bytes, why: str) -> Patch:
    meta = vmi.metadata
    return Patch(resource=VMIS, key=meta.key, uid=meta.uid, body=body, type=PatchType.MERGE, why=why)
