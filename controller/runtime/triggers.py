"""Triggers: which owners a change in a cache wakes, and after which delay (R16, P19). "Wakes"
means that the owner's key is queued for a pass. The functions here are pure.

There are three cases:

- The owner wakes at once. The change may require a write. An added and a removed object always wake their owners at
  once.
- The owner wakes after `COUNT_DELAY_S`. The change affects only the counts in the status, or the order in which members
  are chosen later. More such changes usually follow soon, and one pass handles all of them.
- The owner does not wake. No decision and no status depends on the change. This is true for most updates by a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias, TypeVar

from informers.meta import KubeObject, ObjectKey
from informers.store import Added, Change, Removed, Updated

T = TypeVar("T", bound=KubeObject)
Wake: TypeAlias = tuple[ObjectKey, float]

COUNT_DELAY_S: Final = 0.2
"""The delay in seconds after a change that affects only counts. It combines several such changes into one pass. A set
whose 1,000 VMIs become ready within seconds writes its status a few times, and not 1,000 times."""


def _nothing(_: object) -> object:
    return None


def wakes_of(
    change: Change[T],
    owners_of: Callable[[T], Iterable[ObjectKey]],
    *,
    decides_by: Callable[[T], object] = _nothing,
    counts_by: Callable[[T], object] = _nothing,
) -> list[Wake]:
    """The owners that the change wakes, each with a delay in seconds.

    `owners_of` returns the keys of an object's owners. `decides_by` returns the values of the object that plans read:
    if one of them changes, the owners wake at once. `counts_by` returns the values that only statuses and rankings
    read: if one of them changes, the owners wake after `COUNT_DELAY_S`.
    """
    match change:
        case Added(new=obj) | Removed(last_known=obj):
            return [(key, 0.0) for key in owners_of(obj)]
        case Updated(old=old, new=new):
            if decides_by(old) != decides_by(new):
                return [(key, 0.0) for key in dict.fromkeys((*owners_of(old), *owners_of(new)))]
            if counts_by(old) != counts_by(new):
                return [(key, COUNT_DELAY_S) for key in owners_of(new)]
            return []


def itself(owner: KubeObject) -> tuple[ObjectKey]:
    """The `owners_of` argument of `wakes_of` for the owners themselves: a change of an owner wakes that owner."""
    return (owner.metadata.key,)
