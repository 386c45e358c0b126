"""The rules for the adoption and the release of VMIs by a replica set (R2)."""

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.label_selectors import Selector
from controller.apimachinery.owner_references import adoption_patch, controller_reference, release_patch
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicas.releases import Releases, choose_releases, plan_row
from controller.replicaset.intent import Intent
from controller.replicaset.snapshot import Snapshot
from controller.replicaset.traits import VMIs, name_of, split_by_selector
from controller.runtime.actions import Confirm, Patch, Plan, Stage, join, waiting
from informers.meta import ObjectMeta, labels_of
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
        _patch(snapshot, vmi.metadata, adoption_patch(vmi.metadata, reference), "the selector matches this orphan")
        for vmi in claims.adopted[: snapshot.burst]
    ]
    patches += [
        _patch(
            snapshot, vmi.metadata, release_patch(vmi.metadata, owner.uid), "its labels no longer match the selector"
        )
        for vmi in claims.released
    ]
    stages = []
    if claims.adopted:
        why = "confirm the owner before it adopts VMIs"
        stages.append(Stage((Confirm(resource=snapshot.replicasets, key=owner.key, uid=owner.uid, why=why),)))
    if patches:
        stages.append(Stage(tuple(patches)))
    left = len(claims.adopted) - snapshot.burst
    claimed = replace(waiting(f"{left} more adoptions wait" if left > 0 else ""), stages=tuple(stages))
    return join((plan_row(snapshot.replicasets, owner, claims.releases, selector, snapshot.now), claimed))


def _patch(snapshot: Snapshot, child: ObjectMeta, body: bytes, why: str) -> Patch:
    return Patch(resource=snapshot.vmis, key=child.key, body=body, type=PatchType.MERGE, why=why)
