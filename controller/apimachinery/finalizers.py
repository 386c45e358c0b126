"""Functions that make patches for vmherd's finalizer on an object.

The patches add the finalizer, remove the finalizer (P6), or remove the finalizer together with an ownerReference (P2).
No patch changes the finalizers and ownerReferences of other writers.

The patch that adds the finalizer replaces the whole list of finalizers. So does the patch that removes the finalizer
from an object that stays. These patches contain the UID and the resourceVersion of the object, so the API server
rejects them if the object has changed.

The other patches that remove values are JSON patches. They test only the UID and the removed values, but not the
resourceVersion. The status of a VM that is shutting down changes often. With the resourceVersion, the API server would
reject the patch after each of these changes.
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
    """Return a merge patch that removes the finalizer.

    The API server rejects the patch if the object has changed. So an object that was deleted in the meantime keeps the
    finalizer.
    """
    return _replacement(meta, tuple(each for each in meta.finalizers or () if each != finalizer))


def removal_patch(meta: ObjectMeta, finalizer: str) -> bytes:
    """Return a JSON patch that removes the finalizer.

    If the object does not have the finalizer, the patch removes nothing.
    """
    return _encode(meta, _finalizer_steps(meta, finalizer))


def owner_and_finalizer_removal_patch(
    meta: ObjectMeta, finalizer: str, owner_uid: str, changes: Mapping[Path, str | None] | None = None
) -> bytes:
    """Return a JSON patch that removes the reference to this owner, and the finalizer.

    The patch leaves out a value that the object does not have. `changes` are further fields that the object has, with
    their new values. None removes the field.
    """
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
    """Return the JSON patch steps that test and remove each value equal to `unwanted`.

    The steps start with the last index, because the removal of a value changes the indexes of the later values.
    """
    steps: list[Step] = []
    for index in reversed(range(len(values))):
        if values[index] == unwanted:
            element = path.format(index)
            steps += [{"op": "test", "path": element + tested, "value": unwanted}, {"op": "remove", "path": element}]
    return steps


def _encode(meta: ObjectMeta, steps: list[Step]) -> bytes:
    return msgspec.json.encode([{"op": "test", "path": "/metadata/uid", "value": meta.uid}, *steps])
