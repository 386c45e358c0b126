"""ControllerRevisions of sets and pools. Each revision stores an earlier or present template (R17, P11).

The cache does not keep all data of all revisions, because most revisions of a cluster belong to other programs.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from controller.apimachinery.conditions import time_text, with_timezone
from controller.apimachinery.names import NAME_LENGTH, SAFE_ALPHABET, cut_apart
from controller.apimachinery.owner_references import controller_reference
from controller.apimachinery.raw_json import encode_as_server
from controller.kubevirt.annotations import POOL_UID, READY_REVISION, ROLLED_OUT, TEMPLATE_HASH
from controller.kubevirt.busy import time_of
from controller.kubevirt.pool_types import POOL_KIND
from controller.kubevirt.replicaset_types import REPLICA_SET_KIND
from controller.kubevirt.resources import CONTROLLER_REVISIONS
from controller.kubevirt.vm_types import ControllerRevision
from controller.kubevirt.vms import REVISION_NAME_PATTERN, is_revision_name
from controller.replicas.catalogue import without_foreign_annotations
from controller.replicas.notes import merge_patch
from controller.runtime.actions import Cause, Create, Delete, Stage, stage_of
from informers.meta import NO_LABELS, KubeObject, ObjectKey, ObjectMeta, annotations_of, controller_of, labels_of
from informers.resource import Resource, T

HASH_LENGTH: Final = 10
"""The number of characters in the hash of a set's template."""

_SET_REVISION_NAME: Final = re.compile(f".+-[{SAFE_ALPHABET}]{{{HASH_LENGTH}}}")


def by_former_pool_uid(revision: ControllerRevision) -> Iterable[str]:
    """Return the UID of the pool that created the revision, or nothing if a controller owns the revision."""
    uid = labels_of(revision.metadata).get(POOL_UID)
    return (uid,) if uid and controller_of(revision.metadata) is None else ()


def former_pool_of_revision(revision: ControllerRevision) -> tuple[ObjectKey, ...]:
    """Return the key of the pool that the name of its revision suggests, if no controller owns the revision.

    If this name is cut, this pool does not exist, and its absence lets the revision be found.
    """
    meta = revision.metadata
    match = REVISION_NAME_PATTERN.fullmatch(meta.name)
    key = ObjectKey(meta.namespace, match[1] if match is not None else meta.name)
    return tuple(key for _ in by_former_pool_uid(revision))


def revision_base(replica_set: str) -> str:
    """Return the part of the names of a set's revisions before the hash. It depends only on the name of the set."""
    return cut_apart(replica_set, NAME_LENGTH - len("-") - HASH_LENGTH)


def set_revision_name(replica_set: str, template_hash: str) -> str:
    return f"{revision_base(replica_set)}-{template_hash}"


def hash_of_set_revision(meta: ObjectMeta) -> str:
    """Return the template hash of a revision of a set, or "". It is in the name `<set>-<hash>` (see `revision_base`),
    and in a label, which a policy may remove. The name is enough while the set controls the revision.
    """
    owner = controller_of(meta)
    if owner is not None and owner.kind == REPLICA_SET_KIND:
        hashed = meta.name.rpartition("-")[2]
        return hashed if meta.name == set_revision_name(owner.name, hashed) else ""
    hashed = labels_of(meta).get(TEMPLATE_HASH, "")
    return hashed if hashed and meta.name.endswith(f"-{hashed}") else ""


def former_set_of(revision: ControllerRevision) -> tuple[ObjectKey, ...]:
    """Return the key of the set that created the revision, with the `revision_base` of its name, if none owns it."""
    meta = revision.metadata
    hashed = hash_of_set_revision(meta)
    if not hashed or controller_of(meta) is not None:
        return ()
    return (ObjectKey(meta.namespace, meta.name.removesuffix(f"-{hashed}")),)


def kept_revision(revision: ControllerRevision) -> ControllerRevision | None:
    """Return the revision for the cache, or None if the cache does not need the revision.

    Most revisions of a cluster belong to other programs: KubeVirt creates about two for each VM with an instance type.
    If no set and no pool controls the revision, only a part of it is kept:

    - A former revision of a pool is kept, because a user may have removed its owner.
    - Of a former revision of a set, the metadata and the number are kept.
    - If the name could be the name of a new revision, only the identity is kept. So a pool takes another name, and a
      set waits.
    """
    meta = revision.metadata
    owner = controller_of(meta)
    kind = owner.kind if owner is not None else ""
    if kind in (POOL_KIND, REPLICA_SET_KIND):
        return without_foreign_annotations(revision)
    if any(by_former_pool_uid(revision)):
        return without_foreign_annotations(revision)
    if former_set_of(revision):
        return replace(without_foreign_annotations(revision), data=Raw())
    if not (is_revision_name(meta.name) or (owner is None and _SET_REVISION_NAME.fullmatch(meta.name))):
        return None
    identity = ObjectMeta(
        name=meta.name, namespace=meta.namespace, uid=meta.uid, resource_version=meta.resource_version
    )
    return ControllerRevision(metadata=identity)


def create_revision(
    owner: KubeObject,
    resource: Resource[T],
    name: str,
    data: object,
    *,
    labels: Mapping[str, str],
    worked: str = "",
    annotations: Mapping[str, str] = NO_LABELS,
) -> Create:
    """Return the create of a revision of a set or pool, with `data`. Its number is the generation of its owner
    (`roll_out_again` changes it). `worked` is the last revision whose members were ready, or "". The new revision names
    it if it is another one, so it stays while the new one is current.
    """
    meta = owner.metadata
    annotations = {**annotations, **({READY_REVISION: worked} if worked not in ("", name) else {})}
    body = {
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "kind": CONTROLLER_REVISIONS.kind,
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "labels": labels,
            "ownerReferences": [controller_reference(resource, meta)],
            **({"annotations": annotations} if annotations else {}),
        },
        "revision": meta.generation or 0,
        "data": Raw(encode_as_server(data)),
    }
    return Create(
        resource=CONTROLLER_REVISIONS,
        key=ObjectKey(meta.namespace, name),
        body=msgspec.json.encode(body),
        owner_uid=meta.uid,
        why="no revision has this template yet",
    )


def last_ready(revisions: Iterable[ControllerRevision], ready: Iterable[tuple[str, int]] = ()) -> str:
    """Return the revision that most ready members have. `ready` has revisions, each with a number of such members.
    Without such a member, return the revision that the newest revision names so, or "".
    """
    names: Counter[str] = Counter()
    for name, number in ready:
        names[name] += number
    newest = max(revisions, key=lambda each: each.revision, default=None)
    noted = annotations_of(newest.metadata).get(READY_REVISION, "") if newest is not None else ""
    return max(names, key=lambda name: (names[name], name), default=noted)


def roll_out_again(
    owner: KubeObject,
    revisions: Iterable[ControllerRevision],
    current: str,
    now: datetime,
    ready: Iterable[tuple[str, int]] = (),
) -> tuple[Stage, ...]:
    """Give the revision `current` the generation of its owner as its number, if another one was rolled out after it. So
    the numbers tell the order of the last rollouts, as for a StatefulSet. `ready` is that of `last_ready`.
    """
    staying = [each for each in revisions if each.metadata.deletion_timestamp is None]
    latest, generation = max((each.revision for each in staying), default=0), owner.metadata.generation or 0
    found = next((each for each in staying if each.metadata.name == current), None)
    if found is None or found.revision in (latest, generation):
        return ()
    worked, why = last_ready(staying, ready), "its template is rolled out again"
    notes = {ROLLED_OUT: time_text(now), **({READY_REVISION: worked} if worked else {})}
    more = {"revision": generation}
    patch = merge_patch(CONTROLLER_REVISIONS, found.metadata, {"annotations": notes}, why, more=more, is_note=True)
    return stage_of([patch])


def rollouts_of(revisions: Iterable[ControllerRevision]) -> Iterator[tuple[datetime, int, str]]:
    """Yield when the template of each revision of a set was rolled out, first and last, with its number and hash."""
    for each in revisions:
        meta = each.metadata
        for at in (with_timezone(meta.creation_timestamp), time_of(annotations_of(meta).get(ROLLED_OUT, ""))):
            if at is not None:
                yield at, each.revision, hash_of_set_revision(meta)


def delete_revisions(revisions: Iterable[ControllerRevision], why: str, *, burst: int) -> tuple[Stage, ...]:
    """Return a stage that deletes at most `burst` of these revisions, without those that are being deleted."""
    left = [each.metadata for each in revisions if each.metadata.deletion_timestamp is None][: max(burst, 0)]
    return stage_of(_delete(each, why) for each in left)


def unused_revisions(
    revisions: Iterable[ControllerRevision], used: Collection[str], *, keep: int
) -> list[ControllerRevision]:
    """Return the revisions to delete, the newest first: those that are neither in `used` nor the newest `keep` others,
    to which a user can return. Revisions that are being deleted do not count.
    """
    unused = [
        revision
        for revision in revisions
        if revision.metadata.name not in used and revision.metadata.deletion_timestamp is None
    ]
    unused.sort(key=lambda revision: (-revision.revision, revision.metadata.name))
    return unused[keep:]


def _delete(revision: ObjectMeta, why: str) -> Delete:
    owner = controller_of(revision)
    return Delete(
        resource=CONTROLLER_REVISIONS,
        key=revision.key,
        uid=revision.uid,
        version=revision.resource_version,
        owner_uid=owner.uid if owner is not None else "",
        why=why,
        cause=Cause.PRUNING,
    )
