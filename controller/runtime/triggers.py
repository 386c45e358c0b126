"""From a change in a cache to the owners to look at, and how soon (R16, P19). Pure: a change in, keys and delays out.

There are three answers. At once: the change can call for a write. Within `COUNT_DELAY_S`: it changes only what a status
counts or what a later choice ranks by. Never: no decision depends on it, as with most of what a node reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias, TypeVar

from informers.meta import KubeObject, ObjectKey
from informers.store import Added, Change, Removed, Updated

T = TypeVar("T", bound=KubeObject)
Wake: TypeAlias = tuple[ObjectKey, float]

COUNT_DELAY_S: Final = 0.2
"""How long a change of mere counts may wait for more of its kind: a set whose 1,000 VMIs become ready within seconds
writes its status a few times, and not 1,000 times."""


def _nothing(_: object) -> object:
    return None


def wakes_of(
    change: Change[T],
    concerned: Callable[[T], Iterable[ObjectKey]],
    *,
    decides_by: Callable[[T], object] = _nothing,
    counts_by: Callable[[T], object] = _nothing,
) -> list[Wake]:
    """The owners that the change concerns, each with a delay in seconds.

    `concerned` names the owners of an object. `decides_by` is what plans read of the object, and `counts_by` what only
    statuses and rankings read.
    """
    match change:
        case Added(new=obj) | Removed(last_known=obj):
            return [(key, 0.0) for key in concerned(obj)]
        case Updated(old=old, new=new):
            if decides_by(old) != decides_by(new):
                return [(key, 0.0) for key in dict.fromkeys((*concerned(old), *concerned(new)))]
            if counts_by(old) != counts_by(new):
                return [(key, COUNT_DELAY_S) for key in concerned(new)]
            return []


def itself(owner: KubeObject) -> tuple[ObjectKey]:
    """For `wakes_of`: an owner concerns itself."""
    return (owner.metadata.key,)
