"""Triggers decide which owners (sets or pools) wake, so are queued, after a change in a cache, and when (R16, P19).

- An owner wakes at once if the change may require a write, as that of an object that is added or removed.
- It wakes after `COUNT_DELAY_S` if the change affects only counts in the status, or the order of later choices. One
  reconciliation then handles the similar changes that usually follow.
- It does not wake if nothing depends on the change, as for most updates that virt-handler sends.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias, TypeVar

from informers.meta import KubeObject, ObjectKey
from informers.store import Added, Change, Removed, Updated

T = TypeVar("T", bound=KubeObject)
Wake: TypeAlias = tuple[ObjectKey, float]

COUNT_DELAY_S: Final = 0.2


def _nothing(_: object) -> object:
    return None


def wakes_of(
    change: Change[T],
    owners_of: Callable[[T], Iterable[ObjectKey]],
    *,
    decides_by: Callable[[T], object] = _nothing,
    counts_by: Callable[[T], object] = _nothing,
) -> list[Wake]:
    """Return the keys that the change wakes, with delays in seconds. `owners_of` returns those of an object.

    If a value of `decides_by` changes, they wake at once, and for `counts_by` after `COUNT_DELAY_S`.
    """
    match change:
        case Added(new=obj) | Removed(last_known=obj):
            return [(key, 0.0) for key in owners_of(obj)]
        case Updated(only_version=True):
            return []
        case Updated(old=old, new=new):
            if decides_by(old) != decides_by(new):
                return [(key, 0.0) for key in dict.fromkeys((*owners_of(old), *owners_of(new)))]
            if counts_by(old) != counts_by(new):
                return [(key, COUNT_DELAY_S) for key in owners_of(new)]
            return []


def itself(owner: KubeObject) -> tuple[ObjectKey]:
    """Return the key of the object itself. `wakes_of` uses this function for the cache of the sets or pools."""
    return (owner.metadata.key,)
