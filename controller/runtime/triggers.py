"""Triggers decide which owners (sets or pools) wake after a change in a cache, and after which delay (R16, P19).

To wake an owner means to queue the key of the owner for a reconciliation. The functions in this module are pure.

There are three cases:

- The owner wakes at once, if the change may require a write. An object that is added or removed always wakes its owners
  at once.
- The owner wakes after `COUNT_DELAY_S` if the change affects only the counts in the status, or the order in which a
  later plan chooses objects. More such changes usually follow soon. One reconciliation handles all of these changes.
- The owner does not wake, if no decision and no status depends on the change. Most updates that virt-handler sends
  belong to this case.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias, TypeVar

from informers.meta import KubeObject, ObjectKey
from informers.store import Added, Change, Removed, Updated

T = TypeVar("T", bound=KubeObject)
Wake: TypeAlias = tuple[ObjectKey, float]

COUNT_DELAY_S: Final = 0.2
"""The delay after a change that affects only replica counts, in seconds. One reconciliation handles all."""


def _nothing(_: object) -> object:
    return None


def wakes_of(
    change: Change[T],
    owners_of: Callable[[T], Iterable[ObjectKey]],
    *,
    decides_by: Callable[[T], object] = _nothing,
    counts_by: Callable[[T], object] = _nothing,
) -> list[Wake]:
    """Return the keys of the owners that the change wakes, each with a delay in seconds.

    To wake an owner means to queue its key for a reconciliation. `owners_of` returns the keys of the owners of an
    object. `decides_by` and `counts_by` return values of the object. If a value of `decides_by` changes, a plan may
    change, so the owners wake at once. The values of `counts_by` affect only the status, and the order in which plans
    choose objects. If only such values change, the owners wake after `COUNT_DELAY_S`.
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
