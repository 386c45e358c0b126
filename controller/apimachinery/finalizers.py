"""Makes patches that add vmherd's finalizer, or remove it (P6), also with an ownerReference (P2), and nothing of
others.

A patch that replaces the list, to add the finalizer or to remove it from an object that stays, has the UID and the
resourceVersion, so the API server rejects it if the object has changed. The others are JSON patches, which test only
the UID and the removed values: the status of a VM that is shutting down changes often.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from informers.meta import ObjectMeta

Step: TypeAlias = dict[str, str]
Path: TypeAlias = tuple[str, ...]


def addition_patch(meta: ObjectMeta, finalizer: str) -> bytes:
    return _replacement(meta, (*(meta.finalizers or ()), finalizer))


def exact_removal_patch(meta: ObjectMeta, finalizer: str) -> bytes:
    """Return a merge patch without the finalizer. The API server rejects the patch if the object has changed."""
    return _replacement(meta, tuple(each for each in meta.finalizers or () if each != finalizer))


def removal_patch(meta: ObjectMeta, finalizer: str) -> bytes:
    """Return a JSON patch that removes the finalizer, or nothing if the object does not have it."""
    return _encode(meta, _finalizer_steps(meta, finalizer))


def owner_and_finalizer_removal_patch(
    meta: ObjectMeta, finalizer: str, owner_uid: str, changes: Mapping[Path, str | None] | None = None
) -> bytes:
    """Remove the reference to this owner, and the finalizer. `changes` are new values of other fields, or None."""
    owners = [reference.uid for reference in meta.owner_references or ()]
    steps = _removals(owners, owner_uid, "/metadata/ownerReferences/{}", tested="/uid")
    for path, value in (changes or {}).items():
        pointer = "".join("/" + each.replace("~", "~0").replace("/", "~1") for each in path)
        steps.append({"op": "remove" if value is None else "replace", "path": pointer, "value": value or ""})
    return _encode(meta, steps + _finalizer_steps(meta, finalizer))


def _replacement(meta: ObjectMeta, finalizers: Sequence[str]) -> bytes:
    fields = {"uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": finalizers}
    return msgspec.json.encode({"metadata": fields})


def _finalizer_steps(meta: ObjectMeta, finalizer: str) -> list[Step]:
    return _removals(meta.finalizers or (), finalizer, "/metadata/finalizers/{}")


def _removals(values: Sequence[str], unwanted: str, path: str, *, tested: str = "") -> list[Step]:
    """Yield the steps that test and remove each `unwanted` value, the last first: a removal changes later indexes."""
    steps: list[Step] = []
    for index in reversed(range(len(values))):
        if values[index] == unwanted:
            element = path.format(index)
            steps += [{"op": "test", "path": element + tested, "value": unwanted}, {"op": "remove", "path": element}]
    return steps


def _encode(meta: ObjectMeta, steps: list[Step]) -> bytes:
    return msgspec.json.encode([{"op": "test", "path": "/metadata/uid", "value": meta.uid}, *steps])
