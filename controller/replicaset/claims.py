"""The rules for the adoption and the release of VMIs by a replica set (R2).

A VMI that is released loses what vmherd has noted on it. A *stray* is an orphan that still has such notes: a user has
removed the ownerReference, or has deleted the set with `--cascade=orphan`. If no set adopts it, it loses the notes too.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.label_selectors import Selector
from controller.apimachinery.names import SUFFIX_LENGTH
from controller.apimachinery.owner_references import adoption_patch, controller_reference, release_patch
from controller.kubevirt.annotations import IN_SERVICE, own_notes
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_deleting
from controller.replicas.draining import guest_of_vmi, is_draining
from controller.replicas.releases import Releases, choose_releases, plan_row
from controller.replicaset.intent import Intent
from controller.replicaset.snapshot import Snapshot
from controller.replicaset.traits import VMIs, name_of, split_by_selector
from controller.runtime.actions import AnyResource, Confirm, Patch, Plan, Stage, join, waiting
from informers.meta import ObjectKey, labels_of
from informers.objects import PatchType


class Claims(Struct, frozen=True):
    """The VMIs of a set in four groups: kept, adopted and released VMIs, and VMIs whose release waits."""

    kept: VMIs
    adopted: tuple[VirtualMachineInstance, ...]
    releases: Releases[VirtualMachineInstance]

    @property
    def released(self) -> tuple[VirtualMachineInstance, ...]:
        return self.releases.now

    @property
    def held(self) -> tuple[VirtualMachineInstance, ...]:
        return self.releases.held


def choose_claims(snapshot: Snapshot, intent: Intent) -> Claims:
    """Separate the VMIs into groups, by their labels and the selector of the set.

    A VMI that is being deleted is neither adopted nor released.
    """
    selector = intent.selector
    kept, strange = split_by_selector(snapshot.members, selector)
    releases = choose_releases(snapshot.owner.metadata, strange, kept, intent.replicas, snapshot.now)
    adopted = [
        vmi
        for vmi in snapshot.orphans
        if vmi.metadata.deletion_timestamp is None and selector.matches(labels_of(vmi.metadata))
    ]
    return Claims(kept, tuple(sorted(adopted, key=name_of)), releases)


def plan_claims(snapshot: Snapshot, selector: Selector, claims: Claims) -> Plan:
    """Plan the patches that adopt and release VMIs.

    One reconciliation adopts at most `burst` VMIs.

    Before an adoption, the API server must confirm that the set has the same UID and is not being deleted.
    """
    owner = snapshot.owner.metadata
    reference = controller_reference(snapshot.replicasets, owner)
    patches = [
        _patch(snapshot.vmis, vmi, adoption_patch(vmi.metadata, reference), "the selector matches this orphan")
        for vmi in claims.adopted[: snapshot.burst]
    ]
    strays = [vmi for vmi in strays_of(owner.key, snapshot.orphans) if not selector.matches(labels_of(vmi.metadata))]
    patches += release((*claims.released, *strays), snapshot.vmis, selector, owner.uid)
    stages = []
    if claims.adopted:
        why = "confirm the owner before it adopts VMIs"
        stages.append(Stage((Confirm(resource=snapshot.replicasets, key=owner.key, uid=owner.uid, why=why),)))
    if patches:
        stages.append(Stage(tuple(patches)))
    left = len(claims.adopted) - snapshot.burst
    claimed = replace(waiting(f"{left} more adoptions wait" if left > 0 else ""), stages=tuple(stages))
    return join((plan_row(snapshot.replicasets, owner, claims.releases, selector, snapshot.now), claimed))


def strays_of(key: ObjectKey, orphans: Iterable[VirtualMachineInstance]) -> Iterator[VirtualMachineInstance]:
    """Yield the orphans with notes of vmherd whose names say that the set `key` created them."""
    return (vmi for vmi in orphans if not is_deleting(vmi) and key in former_set_of_vmi(vmi))


def former_set_of_vmi(vmi: VirtualMachineInstance) -> tuple[ObjectKey, ...]:
    """Return the key that the name of a VMI with notes of vmherd suggests. If the VMI has its name from the template,
    there may be no such set, and its absence lets the VMI be found.
    """
    meta = vmi.metadata
    return (ObjectKey(meta.namespace, meta.name[:-SUFFIX_LENGTH]),) if own_notes(meta) else ()


def release(
    vmis: Iterable[VirtualMachineInstance], resource: AnyResource, selector: Selector, owner_uid: str
) -> Iterator[Patch]:
    """Yield the patches that remove the owner and the notes of vmherd from these VMIs. If the selector reads the label
    of a drain, vmherd has not changed the label.
    """
    for vmi in vmis:
        meta = vmi.metadata
        changes: dict[str, object] = {"annotations": dict.fromkeys(notes)} if (notes := own_notes(meta)) else {}
        if is_draining(meta) and guest_of_vmi(resource, selector, vmi).has_label:
            changes["labels"] = {IN_SERVICE: "true"}
        yield _patch(resource, vmi, release_patch(meta, owner_uid, changes), "its labels no longer match the selector")


def _patch(resource: AnyResource, vmi: VirtualMachineInstance, body: bytes, why: str) -> Patch:
    return Patch(resource=resource, key=vmi.metadata.key, body=body, type=PatchType.MERGE, why=why)
