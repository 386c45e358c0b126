"""The changes of single VMs and VMIs: marks for scale-in, detaching and adopting."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

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
    OWN_NOTES,
    PROTECT,
    REMOVE,
    REVISION_NAME,
    STANDBY,
)
from controller.kubevirt.busy import time_of
from controller.kubevirt.merge_keys import VM_RULES
from controller.kubevirt.pool_types import Pool
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.kubevirt.standby import has_standby_mark
from controller.pool.members.situation import Situation
from controller.pool.spec.indexing import encode_disks, encode_shape
from controller.pool.spec.naming import ordinal_of
from informers.meta import ObjectMeta
from plugin.views.edits import ABSENT, Document, Edit, edited, field
from plugin.views.steering import Refused

OWNERS: Final = ("metadata", "ownerReferences")
LABELS: Final = ("metadata", "labels")
ANNOTATIONS: Final = ("metadata", "annotations")
REVISION: Final = (*LABELS, REVISION_NAME)
KEPT_COST: Final = "1000"
"""The deletion cost of a VM that its user gives back with its data."""

MACHINE_LABELS: Final = ("spec", "template", "metadata", "labels")


def protect_edits(member: Document, *, protected: bool) -> tuple[Edit, ...]:
    """Return the change that protects a member from scale-in, or ends the protection. Raise Refused."""
    owner_kind(member)
    return _mark(member, PROTECT, "true" if protected else ABSENT)


def remove_edits(member: Document, *, on: bool) -> tuple[Edit, ...]:
    """Return the change that sets or removes the mark. Raise Refused if the member is protected, or if it does not
    count as one of the wanted VMs: another VM would leave in its place.
    """
    owner_kind(member)
    if on and (by := field(member, (*ANNOTATIONS, CLAIMED_BY))) is not ABSENT:
        raise Refused(f"{_path(member)} is claimed by {by}, and no scale-in takes it: run release")
    if on and _is_on_standby(member):
        raise Refused(f"{_path(member)} is on standby, and no scale-in takes it: lower {STANDBY}, or delete it")
    if on and field(member, ("metadata", "annotations", PROTECT)) == "true":
        raise Refused(f"{_path(member)} is protected by {PROTECT}: run unprotect first")
    return _mark(member, REMOVE, "true" if on else ABSENT)


def busy_edits(member: Document, until: datetime | None) -> tuple[Edit, ...]:
    """Return the change that marks a member as busy until this time. None removes the mark. Raise Refused."""
    owner_kind(member)
    if until is not None and _is_on_standby(member):
        raise Refused(f"{_path(member)} is on standby, and does no work yet: claim a VM of the pool, or scale it out")
    return _mark(member, BUSY_UNTIL, _time_text(until) if until is not None else ABSENT)


def _is_on_standby(member: Document) -> bool:
    return has_standby_mark(msgspec.convert(member["metadata"], ObjectMeta))


def release_edits(member: Document, at: datetime | None) -> tuple[Edit, ...]:
    """Return the change that ends the claim of a VM at this time. None takes the claim away, and lets other VMs leave
    first: the pool has replaced the VM. Raise Refused.
    """
    if field(member, (*ANNOTATIONS, CLAIMED_BY)) is ABSENT:
        raise Refused(f"{_path(member)} is not claimed")
    if at is not None:
        created = time_of(str(field(member, ("metadata", "creationTimestamp"))))  # by the clock of the server
        return _mark(member, CLAIMED_UNTIL, _time_text(created if created is not None and created > at else at))
    stays = _mark(member, DELETION_COST, KEPT_COST) if field(member, (*ANNOTATIONS, DELETION_COST)) is ABSENT else ()
    # A VM whose claim has ended may drain already. Without its mark it does not leave first.
    drains = (*_mark(member, DRAINING, ABSENT), *_mark(member, DRAINED, ABSENT))
    return (*_mark(member, CLAIMED_BY, ABSENT), *_mark(member, CLAIMED_UNTIL, ABSENT), *drains, *stays)


def _time_text(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def owner_kind(member: Document) -> Kind[Any]:
    """Return the kind of the pool or set that controls a member. Raise Refused if there is none."""
    owner = controller(member)
    for kind in KINDS:
        if owner is not None and owner.get("kind") == kind.kind:
            return kind
    if owner is not None and owner.get("kind") == "VirtualMachine":
        raise Refused(f"{_path(member)} belongs to the VM {owner.get('name')}: name vm/{owner.get('name')} instead")
    raise Refused(f"{_path(member)} belongs to no pool and no replica set")


def controller(member: Document) -> Mapping[str, Any] | None:
    owners = field(member, OWNERS)
    return next((each for each in (() if owners is ABSENT else owners) if each.get("controller")), None)


def detach_edits(member: Document, owner: ReplicaSet | None) -> tuple[Edit, ...]:
    """Return the change that releases a member from its pool or set. `owner` is the set of a VMI, or None.

    A set adopts a released VMI if the labels match the selector. So the VMI also loses the labels of the selector.

    Raise Refused if the remaining labels still match.
    """
    reference = controller(member)
    others = [each for each in field(member, OWNERS) if each is not reference]
    release = (Edit(OWNERS, others or ABSENT), *_without_notes(member, owner))
    if owner is None:
        return release
    selector = owner.spec.selector or LabelSelector()
    labels = _labels(member)
    left = {name: text for name, text in labels.items() if name not in (selector.match_labels or {})}
    if _selector(owner).matches(left):
        raise Refused(
            f"{_path(member)} would be adopted again: change a label of matchExpressions with kubectl label first"
        )
    removed = [Edit((*LABELS, name), ABSENT) for name in labels if name not in left]
    return (*release, *removed)


def _without_notes(member: Document, owner: ReplicaSet | None) -> tuple[Edit, ...]:
    """Return the changes that take the notes of vmherd off a member. If the VMI of a pool's VM may have a mark too, the
    controller takes both off, the one of the VMI first.
    """
    notes = [name for name in OWN_NOTES if field(member, (*ANNOTATIONS, name)) is not ABSENT]
    label = field(member, (*LABELS, IN_SERVICE))
    if owner is None and field(member, (*MACHINE_LABELS, IN_SERVICE)) is not ABSENT:
        return ()
    removed = tuple(Edit((*ANNOTATIONS, name), ABSENT) for name in notes)
    is_out = owner is not None and DRAINING in notes and label == "false" and not _selector(owner).reads(IN_SERVICE)
    return (*removed, Edit((*LABELS, IN_SERVICE), "true")) if is_out else removed


def adopt_edits(member: Document, owner: ReplicaSet | Pool) -> tuple[Edit, ...]:
    """Return the labels that a VMI or VM needs to match the selector of a set or pool. Raise Refused if these labels
    are not enough, or if the VMI or VM cannot be adopted.
    """
    holder = controller(member)
    if holder is not None:
        raise Refused(f"{_path(member)} belongs to {holder.get('kind')} {holder.get('name')}: run detach first")
    if field(member, ("metadata", "deletionTimestamp")) is not ABSENT:
        raise Refused(f"{_path(member)} is being deleted")
    wanted = dict((owner.spec.selector or LabelSelector()).match_labels or {})
    labels = _labels(member)
    if not _selector(owner).matches({**labels, **wanted}):
        raise Refused(f"{_path(member)} does not match the matchExpressions of {owner.metadata.name}: label it first")
    return tuple(Edit((*LABELS, name), text) for name, text in wanted.items() if labels.get(name) != text)


def adopt_vm_edits(vm: Document, situation: Situation) -> tuple[tuple[Edit, ...], str]:
    """Return the change that makes a VM a member of a pool, and the revision that the VM has, or "".

    The VM gets the owner reference, and the labels of the selector. A claim that has ended would end with the VM, so it
    gets no end. If the pool's template would change nothing in the
    VM, the VM gets the label of the present revision, so no update restarts it. Raise Refused.
    """
    snapshot, revisions = situation.snapshot, situation.revisions
    pool, name = snapshot.owner.metadata, str(field(vm, ("metadata", "name")))
    edits, ordinal = adopt_edits(vm, snapshot.owner), ordinal_of(name, pool.name)
    if ordinal is None:
        raise Refused(
            f"{_path(vm)} cannot join pool {pool.name}: the names of its VMs are {pool.name}-0, -1, and so on"
        )
    own = msgspec.to_builtins(controller_reference(snapshot.pools, pool))
    others = field(vm, OWNERS)
    edits = (*edits, Edit(OWNERS, [*(() if others is ABSENT else others), own]))
    until = time_of(str(field(vm, (*ANNOTATIONS, CLAIMED_UNTIL))))
    if until is not None and until <= situation.now:
        edits = (*edits, Edit((*ANNOTATIONS, CLAIMED_UNTIL), ABSENT))
    both = REVISION, (*MACHINE_LABELS, REVISION_NAME)
    marked = (*edits, *(Edit(label, revisions.current) for label in both))
    shape, disks = (
        encode_shape(revisions.template, ordinal, revisions.current),
        encode_disks(revisions.template, ordinal),
    )
    has, wants = _disks(vm), _disks(msgspec.json.decode(shape))
    if len(has) != len(wants) or not {*_volumes(msgspec.json.decode(disks))} <= {*_volumes(vm)}:
        raise Refused(
            f"{_path(vm)} has the dataVolumeTemplates {', '.join(has) or '(none)'}, and the pool {pool.name} would "
            f"give it {', '.join(wants) or '(none)'}: give the pool a template with the same disks"
        )
    if VM_RULES.merge(msgspec.json.encode(edited(vm, marked)), disks if has != wants else b"{}", shape) is None:
        return marked, revisions.current
    return (*edits, *(Edit(label, ABSENT) for label in both if field(vm, label) is not ABSENT)), ""


def _disks(vm: Document) -> list[str]:
    templates = field(vm, ("spec", "dataVolumeTemplates"))
    found = [] if templates is ABSENT else templates or []
    return sorted(str(field(each, ("metadata", "name"))) for each in found)


def _volumes(vm: Document) -> list[str]:
    found = field(vm, ("spec", "template", "spec", "volumes"))
    return [str(field(each, ("name",))) for each in (() if found is ABSENT else found or ())]


def after_detach(kind: Kind[Any], owner: str) -> str:
    member = "VM" if kind is POOLS else "VMI"
    return f"Note: the {kind.noun} {owner} creates another {member} in its place, unless it is scaled in."


def _mark(member: Document, annotation: str, value: Any) -> tuple[Edit, ...]:
    path = ("metadata", "annotations", annotation)
    return () if field(member, path) == value else (Edit(path, value),)


def _labels(member: Document) -> dict[str, str]:
    labels = field(member, LABELS)
    return {} if labels is ABSENT else dict(labels)


def _selector(owner: ReplicaSet | Pool) -> Selector:
    selector = parse_selector(owner.spec.selector or LabelSelector())
    if isinstance(selector, FieldError):
        raise Refused(f"the set is invalid: {selector.message}")
    return selector


def _path(member: Document) -> str:
    short = "vm" if member.get("kind") == "VirtualMachine" else "vmi"
    return f"{short}/{field(member, ('metadata', 'name'))}"
