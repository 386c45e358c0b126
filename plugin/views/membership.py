"""The changes of single VMs and VMIs: marks for scale-in, detaching and adopting."""

from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from controller.apimachinery.conditions import time_text, with_timezone
from controller.apimachinery.field_error import FieldError
from controller.apimachinery.label_selectors import LabelSelector, Selector, parse_selector
from controller.apimachinery.owner_references import controller_reference
from controller.kinds import KINDS, POOLS, Kind
from controller.kubevirt.annotations import (
    BUSY_UNTIL,
    CLAIMED_BY,
    CLAIMED_UNTIL,
    DELETION_COST,
    DRAINED,
    DRAINING,
    IN_SERVICE,
    PROTECT,
    REMOVE,
    REVISION_NAME,
    STANDBY,
    is_marked,
    own_notes,
)
from controller.kubevirt.busy import is_claimed, time_of
from controller.kubevirt.merge_keys import VM_RULES
from controller.kubevirt.pool_types import Pool
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.kubevirt.resources import VMS
from controller.kubevirt.standby import has_standby_mark
from controller.pool.members.situation import Situation
from controller.pool.spec.indexing import encode_disks, encode_shape
from controller.pool.spec.naming import ordinal_of
from informers.meta import ObjectKey, ObjectMeta, OwnerReference, annotations_of, controller_of, labels_of
from informers.resource import Resource
from plugin.views.edits import ABSENT, Document, Edit, edited, field, items
from plugin.views.steering import Refused

OWNERS: Final = ("metadata", "ownerReferences")
LABELS: Final = ("metadata", "labels")
ANNOTATIONS: Final = ("metadata", "annotations")
REVISION: Final = (*LABELS, REVISION_NAME)
KEPT_COST: Final = "1000"
"""The deletion cost of a VM that its user gives back with its data."""

MACHINE_LABELS: Final = ("spec", "template", "metadata", "labels")


class Item(Struct, frozen=True):
    """A VM or VMI as the server sent it."""

    resource: Resource[Any]
    document: Document

    @property
    def meta(self) -> ObjectMeta:
        return msgspec.convert(self.document["metadata"], ObjectMeta)

    @property
    def key(self) -> ObjectKey:
        return self.meta.key

    @property
    def path(self) -> str:
        return f"{self.resource.kind.lower()}.{self.resource.group}/{self.key.name}"

    def __str__(self) -> str:
        return f"{'vm' if self.resource is VMS else 'vmi'}/{self.key.name}"


def protect_edits(member: Item, *, protected: bool) -> tuple[Edit, ...]:
    """Return the change that protects a member from scale-in, or ends the protection. Raise Refused."""
    owner_of(member)
    return _mark(member, PROTECT, "true" if protected else ABSENT)


def remove_edits(member: Item, *, on: bool) -> tuple[Edit, ...]:
    """Return the change that sets or removes the mark. Raise Refused if the member is protected, or if it does not
    count as one of the wanted VMs: another VM would leave in its place.
    """
    owner_of(member)
    meta = member.meta
    if on and is_claimed(meta):
        raise Refused(
            f"{member} is claimed by {annotations_of(meta)[CLAIMED_BY]}, and no scale-in takes it: run release"
        )
    if on and has_standby_mark(meta):
        raise Refused(f"{member} is on standby, and no scale-in takes it: lower {STANDBY}, or delete it")
    if on and is_marked(meta, PROTECT):
        raise Refused(f"{member} is protected by {PROTECT}: run unprotect first")
    return _mark(member, REMOVE, "true" if on else ABSENT)


def busy_edits(member: Item, until: datetime | None) -> tuple[Edit, ...]:
    """Return the change that marks a member as busy until this time. None removes the mark. Raise Refused."""
    owner_of(member)
    if until is not None and has_standby_mark(member.meta):
        raise Refused(f"{member} is on standby, and does no work yet: claim a VM of the pool, or scale it out")
    return _mark(member, BUSY_UNTIL, time_text(until) if until is not None else ABSENT)


def release_edits(member: Item, at: datetime | None) -> tuple[Edit, ...]:
    """Return the change that ends the claim of a VM at this time. None takes the claim away, and lets other VMs leave
    first: the pool has replaced the VM. Raise Refused.
    """
    meta = member.meta
    if not is_claimed(meta):
        raise Refused(f"{member} is not claimed")
    if at is not None:
        created = with_timezone(meta.creation_timestamp)  # by the clock of the server
        return _mark(member, CLAIMED_UNTIL, time_text(created if created is not None and created > at else at))
    stays = () if DELETION_COST in annotations_of(meta) else _mark(member, DELETION_COST, KEPT_COST)
    # A VM whose claim has ended may drain already. Without its mark it does not leave first.
    drains = (*_mark(member, DRAINING, ABSENT), *_mark(member, DRAINED, ABSENT))
    return (*_mark(member, CLAIMED_BY, ABSENT), *_mark(member, CLAIMED_UNTIL, ABSENT), *drains, *stays)


def owner_of(member: Item) -> tuple[Kind[Any], OwnerReference]:
    """Return the kind of the pool or set that controls a member, and the reference. Raise Refused if there is none."""
    owner = controller_of(member.meta)
    for kind in KINDS:
        if owner is not None and owner.kind == kind.kind:
            return kind, owner
    if owner is not None and owner.kind == VMS.kind:
        raise Refused(f"{member} belongs to the VM {owner.name}: name vm/{owner.name} instead")
    raise Refused(f"{member} belongs to no pool and no replica set")


def detach_edits(member: Item, owner: ReplicaSet | None) -> tuple[Edit, ...]:
    """Return the change that releases a member from its pool or set. `owner` is the set of a VMI, or None.

    A set adopts a released VMI if the labels match the selector. So the VMI also loses the labels of the selector.

    Raise Refused if the remaining labels still match.
    """
    meta = member.meta
    others = [each for each in meta.owner_references or () if not each.controller]
    release = (Edit(OWNERS, others or ABSENT), *_without_notes(member, owner))
    if owner is None:
        return release
    wanted, labels = (owner.spec.selector or LabelSelector()).match_labels or {}, labels_of(meta)
    if _selector(owner).matches({name: text for name, text in labels.items() if name not in wanted}):
        raise Refused(f"{member} would be adopted again: change a label of matchExpressions with kubectl label first")
    return (*release, *(Edit((*LABELS, name), ABSENT) for name in labels if name in wanted))


def _without_notes(member: Item, owner: ReplicaSet | None) -> tuple[Edit, ...]:
    """Return the changes that take the notes of vmherd off a member. If the VMI of a pool's VM may have a mark too, the
    controller takes both off, the one of the VMI first.
    """
    if owner is None and field(member.document, (*MACHINE_LABELS, IN_SERVICE)) is not ABSENT:
        return ()
    notes, label = own_notes(member.meta), labels_of(member.meta).get(IN_SERVICE)
    removed = tuple(Edit((*ANNOTATIONS, name), ABSENT) for name in notes)
    is_out = owner is not None and DRAINING in notes and label == "false" and not _selector(owner).reads(IN_SERVICE)
    return (*removed, Edit((*LABELS, IN_SERVICE), "true")) if is_out else removed


def adopt_edits(member: Item, owner: ReplicaSet | Pool) -> tuple[Edit, ...]:
    """Return the labels that a VMI or VM needs to match the selector of a set or pool. Raise Refused if these labels
    are not enough, or if the VMI or VM cannot be adopted.
    """
    meta = member.meta
    holder, labels = controller_of(meta), labels_of(meta)
    if holder is not None:
        raise Refused(f"{member} belongs to {holder.kind} {holder.name}: run detach first")
    if meta.deletion_timestamp is not None:
        raise Refused(f"{member} is being deleted")
    wanted = (owner.spec.selector or LabelSelector()).match_labels or {}
    if not _selector(owner).matches({**labels, **wanted}):
        raise Refused(f"{member} does not match the matchExpressions of {owner.metadata.name}: label it first")
    return tuple(Edit((*LABELS, name), text) for name, text in wanted.items() if labels.get(name) != text)


def adopt_vm_edits(vm: Item, situation: Situation) -> tuple[tuple[Edit, ...], str]:
    """Return the change that makes a VM a member of a pool, and the revision that the VM has, or "".

    The VM gets the owner reference, and the labels of the selector. A claim that has ended would end with the VM, so it
    gets no end. If the pool's template would change nothing in the VM, the VM gets the label of the present revision,
    so no update restarts it. Raise Refused.
    """
    snapshot, revisions, meta, document = situation.snapshot, situation.revisions, vm.meta, vm.document
    pool = snapshot.owner.metadata
    edits, ordinal = adopt_edits(vm, snapshot.owner), ordinal_of(meta.name, pool.name)
    if ordinal is None:
        raise Refused(f"{vm} cannot join pool {pool.name}: the names of its VMs are {pool.name}-0, -1, and so on")
    owners = [*(meta.owner_references or ()), controller_reference(snapshot.pools, pool)]
    edits = (*edits, Edit(OWNERS, owners))
    until = time_of(annotations_of(meta).get(CLAIMED_UNTIL, ""))
    if until is not None and until <= situation.now:
        edits = (*edits, Edit((*ANNOTATIONS, CLAIMED_UNTIL), ABSENT))
    both = REVISION, (*MACHINE_LABELS, REVISION_NAME)
    marked = (*edits, *(Edit(label, revisions.current) for label in both))
    shape = encode_shape(revisions.template, ordinal, revisions.current)
    disks = encode_disks(revisions.template, ordinal)
    has, wants = _disks(document), _disks(msgspec.json.decode(shape))
    if len(has) != len(wants) or not {*_volumes(msgspec.json.decode(disks))} <= {*_volumes(document)}:
        raise Refused(
            f"{vm} has the dataVolumeTemplates {', '.join(has) or '(none)'}, and the pool {pool.name} would "
            f"give it {', '.join(wants) or '(none)'}: give the pool a template with the same disks"
        )
    after = msgspec.json.encode(edited(document, marked))
    if VM_RULES.merge(after, disks if has != wants else b"{}", shape) is None:
        return marked, revisions.current
    return (*edits, *(Edit(label, ABSENT) for label in both if field(document, label) is not ABSENT)), ""


def _disks(vm: Document) -> list[str]:
    return sorted(str(field(each, ("metadata", "name"))) for each in items(vm, ("spec", "dataVolumeTemplates")))


def _volumes(vm: Document) -> list[str]:
    return [str(field(each, ("name",))) for each in items(vm, ("spec", "template", "spec", "volumes"))]


def after_detach(kind: Kind[Any], owner: str) -> str:
    member = "VM" if kind is POOLS else "VMI"
    return f"Note: the {kind.noun} {owner} creates another {member} in its place, unless it is scaled in."


def _mark(member: Item, annotation: str, value: Any) -> tuple[Edit, ...]:
    is_so = annotations_of(member.meta).get(annotation, ABSENT) == value
    return () if is_so else (Edit((*ANNOTATIONS, annotation), value),)


def _selector(owner: ReplicaSet | Pool) -> Selector:
    selector = parse_selector(owner.spec.selector or LabelSelector())
    if isinstance(selector, FieldError):
        raise Refused(f"the set is invalid: {selector.message}")
    return selector
