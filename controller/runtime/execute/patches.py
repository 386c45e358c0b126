"""Performs the actions that read an object from the server before they patch it, and judges the answers to writes.

A policy may take back what a patch or a create writes.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from fractions import Fraction
from math import ceil
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from controller.apimachinery.owner_references import release_patch
from controller.apimachinery.quantities import parse_quantity
from controller.apimachinery.raw_json import text_of, value_at
from controller.apimachinery.redaction import redacted
from controller.kubevirt.annotations import ADOPT_DISKS, KEPT_FOR, STANDBY_STATE, USED_FOR
from controller.kubevirt.merge_keys import VM_RULES
from controller.kubevirt.pool_types import POOL_KIND
from controller.kubevirt.replicaset_types import REPLICA_SET_KIND
from controller.kubevirt.resources import VMIS
from controller.kubevirt.standby import has_standby_mark, mark_in
from controller.runtime.actions import (
    Action,
    Create,
    Delete,
    Done,
    ExpandClaim,
    Missing,
    Outcome,
    Patch,
    Rejected,
    RemoveOwnerReference,
    ThreeWayMerge,
)
from controller.runtime.execute.disk_check import DiskCheck, may_use
from controller.runtime.workers.side_thread import SideThread, is_large
from informers.errors import ApiError, Conflict, Invalid, NotFound
from informers.meta import ObjectMeta, OwnerReference, annotations_of, controller_of, is_controlled_by, labels_of
from informers.objects import ObjectClient, PatchType, read_meta

ReadAndPatch: TypeAlias = RemoveOwnerReference | ThreeWayMerge | ExpandClaim

_OWNERS: Final = "ownerReferences"
_RUN_STRATEGY: Final = ("spec", "runStrategy")
_OUR_KINDS: Final = (REPLICA_SET_KIND, POOL_KIND)

ATTEMPTS: Final = 4
MOST_SHARE: Final = Fraction(5, 4)
"""The largest size of a claim that CDI makes, as a multiple of the size in the template."""


class _WantedMeta(Struct, frozen=True, rename="camel"):
    labels: dict[str, object] | None = None
    annotations: dict[str, object] | None = None
    finalizers: list[str] | None = None
    owner_references: list[OwnerReference] | None = None


class _Wanted(Struct, frozen=True):
    metadata: _WantedMeta = _WantedMeta()


class _Step(Struct, frozen=True):
    op: str
    path: str
    value: object = None


def owner_removal(action: RemoveOwnerReference, meta: ObjectMeta) -> bytes | Outcome:
    if all(reference.uid != action.owner_uid for reference in meta.owner_references or ()):
        return Done(action)
    mark = {"labels": {KEPT_FOR: action.kept_for, USED_FOR: None}} if action.kept_for else None
    return release_patch(meta, action.owner_uid, mark)


def template_change(action: ThreeWayMerge, meta: ObjectMeta, current: bytes) -> bytes | Outcome:
    """Return the patch of the template change, or an outcome if none is sent: `Done` without a difference, `Missing` if
    the object is gone or has left its owner, `Rejected` if it or a template cannot be read.
    """
    has_left = action.owner_uid != "" and not is_controlled_by(meta, action.owner_uid)
    if meta.uid != action.uid or meta.deletion_timestamp is not None or has_left:
        return Missing(action)
    try:
        patch = VM_RULES.merge(current, action.old, action.new)
        has_others = (
            action.is_exact and patch is not None and VM_RULES.merge(current, action.new, action.old) is not None
        )
    except Exception as error:  # also one that only this object causes: the other VMs are merged
        return Rejected(action, ApiError(f"{action.key} cannot be read: {str(error) or type(error).__name__}"))
    if has_others:
        text = "has own values in fields that the change of the template has too, so it does not get this change"
        return Rejected(action, Invalid(f"{action.key.name} {text}", code=422))
    return Done(action, meta.resource_version) if patch is None else patch


def outcome_of_patch(action: Patch | ReadAndPatch, patch: bytes, answer: bytes) -> Outcome:
    """Return the outcome of a patch: `Rejected` if a policy has taken back some of its metadata."""
    found, wanted = read_meta(answer), _wanted_in(action, patch)
    lost = _lost(wanted.labels, labels_of(found)) + _lost(wanted.annotations, annotations_of(found))
    lost += [each for each in wanted.finalizers or () if each not in (found.finalizers or ())]
    owners = {each.uid for each in found.owner_references or ()}
    lost += [_OWNERS for each in wanted.owner_references or () if each.uid not in owners]
    if b"runStrategy" in patch and (asked := text_of(value_at(patch, *_RUN_STRATEGY))):
        lost += ["spec.runStrategy"] if text_of(value_at(answer, *_RUN_STRATEGY)) != asked else []
    if isinstance(action, RemoveOwnerReference) and action.owner_uid in owners:
        lost.append(_OWNERS)  # the disk would go with its VM
    return Rejected(action, _taken_back(lost, action.key.name)) if lost else Done(action, found.resource_version)


def error_of_create(action: Create, found: ObjectMeta) -> ApiError | None:
    """Return an error if a policy takes back the owner of a new object, or the mark of a new standby. Without them, one
    object after the other would be created. A VMI that has lost only its owner is adopted by its set (R2).
    """
    owner = controller_of(found)
    is_ours = owner is not None and owner.uid == action.owner_uid
    if is_ours and owner is not None and owner.kind not in _OUR_KINDS:
        asked = controller_of(read_meta(action.body))
        is_ours = asked is not None and asked.kind == owner.kind
    lost = [] if is_ours else [_OWNERS]
    if lost and action.resource is VMIS and owner is None:
        taken = _lost(labels_of(read_meta(action.body)), labels_of(found))
        lost = [_OWNERS, *taken] if taken else []
    if mark_in(action.body) and not has_standby_mark(found):
        lost.append(STANDBY_STATE)
    return _taken_back(lost, action.key.name) if lost else None


def error_of_labels(action: Delete, answer: bytes) -> ApiError | None:
    """Return an error if a policy takes a label of the successor, or its owner: then it would not count."""
    successor, made = read_meta(action.successor), read_meta(answer)
    asked = {name: value for name, value in labels_of(successor).items() if name in action.kept}
    lost = _lost(asked, labels_of(made))
    owner, given = controller_of(successor), controller_of(made)
    if owner is not None and given is not None and (owner.uid, owner.kind) != (given.uid, given.kind):
        lost.append(_OWNERS)
    return _taken_back(lost, "the new object") if lost else None


def _lost(asked: Mapping[str, object] | None, has: Mapping[str, str]) -> list[str]:
    return [name for name, value in (asked or {}).items() if has.get(name) != value]


def _taken_back(lost: Iterable[str], name: str) -> Invalid:
    return Invalid(f"a policy takes {', '.join(sorted(lost))} of {name} back", code=422)


def _wanted_in(action: Patch | ReadAndPatch, patch: bytes) -> _WantedMeta:
    if not isinstance(action, Patch) or action.type is PatchType.MERGE:
        return msgspec.json.decode(patch, type=_Wanted).metadata
    steps = msgspec.json.decode(patch, type=tuple[_Step, ...])
    added = {each.path: each.value for each in steps if each.op == "add"}
    return msgspec.convert({"labels": added.get("/metadata/labels")}, _WantedMeta)


def without_content(action: Action, message: str) -> str:
    """Return the server's message without quotes of the confidential parts of the written objects."""
    match action:
        case Patch(body=body, before=Delete(successor=successor)):
            return redacted(message, body, successor, name=action.key.name)
        case Create(body=body) | Patch(body=body) | Delete(successor=body):
            return redacted(message, body, name=action.key.name)
        case ThreeWayMerge(old=old, new=new):
            return redacted(message, old, new, name=action.key.name)
        case _:
            return message


def expansion(action: ExpandClaim, meta: ObjectMeta, claim: bytes) -> bytes | Outcome:
    """Return the patch with the new size, `Done` if the claim has it, or `Rejected` if it is being deleted."""
    if meta.deletion_timestamp is not None:
        return Rejected(action, ApiError(f"the claim {action.key} is being deleted"))
    requested = text_of(value_at(claim, "spec", "resources", "requests", "storage"))
    present = parse_quantity(requested or "0") or Fraction()
    old, new = (parse_quantity(size) or Fraction(1) for size in (action.old_size, action.size))
    if present >= new:
        return Done(action, meta.resource_version)
    # A repeated action finds the claim with at least the new size, so the share is added only once.
    share = present / old if old < present <= MOST_SHARE * old else Fraction(1)
    size = action.size if share == 1 else str(ceil(new * share))
    spec = {"resources": {"requests": {"storage": size}}}
    return msgspec.json.encode({"metadata": {"resourceVersion": meta.resource_version}, "spec": spec})


async def read_and_patch(client: ObjectClient, action: ReadAndPatch, thread: SideThread) -> Outcome:
    """Read the object and patch it, in `thread` if it is large. After ATTEMPTS conflicts, raise Conflict."""
    for _ in range(ATTEMPTS - 1):
        with suppress(Conflict):
            return await _read_and_patch_once(client, action, thread)
    return await _read_and_patch_once(client, action, thread)


async def _read_and_patch_once(client: ObjectClient, action: ReadAndPatch, thread: SideThread) -> Outcome:
    try:
        current = await client.get(action.resource, action.key)
        meta = read_meta(current)
    except NotFound:
        return await _missing(client, action)
    except ApiError as error:
        # Only the read failed, so nothing was written. The outcome is `Rejected` even if the answer to the read was
        # lost.
        return Rejected(action, error)
    match action:
        case RemoveOwnerReference():
            patch = owner_removal(action, meta)
        case ExpandClaim():
            patch = expansion(action, meta, current)
            if isinstance(patch, bytes) and not await _may_grow(client, action, meta):
                text = f"the claim {action.key} does not belong to {action.owner.name}"
                raise Invalid(f"{text}: expand it, or annotate the pool with {ADOPT_DISKS}=true", code=422)
        case ThreeWayMerge():
            if taken := await DiskCheck(client, ()).obstacle(action):
                raise Invalid(taken, code=422)
            large = is_large(size=len(current) + len(action.old) + len(action.new))
            patch = await thread.call(template_change, action, meta, current, large=large)
    if not isinstance(patch, bytes):
        return patch
    answer = await client.patch(action.resource, action.key, patch, content_type=PatchType.MERGE.value)
    return outcome_of_patch(action, patch, answer)


async def _may_grow(client: ObjectClient, action: ExpandClaim, disk: ObjectMeta) -> bool:
    """Return True if the claim, or the DataVolume that owns it, belongs to the VM, or has no owner and is usable."""
    if any(each.kind == action.source.kind for each in disk.owner_references or ()):
        disk = read_meta(await client.get(action.source, action.key))
    owners = [each.uid for each in disk.owner_references or ()]
    return action.owner_uid in owners if owners else may_use(disk, action.usable)


async def _missing(client: ObjectClient, action: ReadAndPatch) -> Outcome:
    if not isinstance(action, ExpandClaim):
        return Missing(action)
    try:
        await client.get(action.source, action.key)
    except NotFound:
        return Missing(action)
    except ApiError as error:
        return Rejected(action, error)
    return Rejected(action, ApiError(f"the claim {action.key} does not exist yet"))
