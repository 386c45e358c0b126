"""The drain of a node: what each pool and set loses, and which VMIs may be evicted now.

A VMI that is ready is evicted only while its owner has fewer unavailable members than allowed. A VMI that is not ready
is evicted at once, because its owner loses nothing.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from plugin.views.situation import Situation
from plugin.views.tables import table

LISTED = 4
ONE_AT_A_TIME = 1
"""The limit of unavailable members for an owner that sets no limit, or the limit 0: a drain cannot add a VMI before."""


class Evictee(Struct, frozen=True, kw_only=True):
    """A VMI on the node. `owner` is the key of the VMI's pool or set, or "" if the VMI has none. Budgets have the same
    keys.

    `is_bare` is True if nothing starts the VMI again.
    """

    namespace: str
    name: str
    uid: str
    owner: str = ""
    is_ready: bool = True
    is_bare: bool = False

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Budget(Struct, frozen=True):
    """The number of members of an owner that may be unavailable, and the number that are unavailable now."""

    limit: int
    unavailable: int


class Round(Struct, frozen=True):
    """The VMIs to evict now, and for each owner the number of VMIs that wait."""

    now: tuple[Evictee, ...]
    waiting: Mapping[str, int]


def budget_of(situation: Situation) -> Budget:
    return Budget(situation.most_unavailable or ONE_AT_A_TIME, situation.unavailable)


def choose(evictees: Iterable[Evictee], budgets: Mapping[str, Budget], evicted: Collection[str]) -> Round:
    """Return the VMIs to evict now. `evicted` are the UIDs of the VMIs whose eviction has begun.

    Such a VMI counts as unavailable while it is still ready, because the counters do not show its loss yet.
    """
    there = tuple(evictees)
    begun = Counter(each.owner for each in there if each.uid in evicted and each.is_ready)
    left = {owner: budget.limit - budget.unavailable - begun[owner] for owner, budget in budgets.items()}
    now, waiting = [], Counter[str]()
    for each in sorted(there, key=lambda each: (each.is_ready, each.namespace, each.name)):
        if each.uid in evicted:
            continue
        if not each.is_ready or each.owner not in left:
            now.append(each)
        elif left[each.owner] > 0:
            left[each.owner] -= 1
            now.append(each)
        else:
            waiting[each.owner] += 1
    return Round(tuple(now), dict(waiting))


def loss_lines(evictees: Iterable[Evictee], budgets: Mapping[str, Budget], *, width: int = 0) -> list[str]:
    """Return the table of what each pool and set loses. VMIs without a pool or set have the owner `<none>`."""
    rows: dict[tuple[str, str], list[str]] = {}
    for each in sorted(evictees, key=lambda each: (each.namespace, each.owner == "", each.owner, each.name)):
        rows.setdefault((each.namespace, each.owner), []).append(each.name)
    cells = []
    for (namespace, owner), names in rows.items():
        budget = budgets.get(owner)
        allowed = f"{budget.limit} ({budget.unavailable} now)" if budget is not None else "<all>"
        more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
        name = owner.partition(" ")[0] or "<none>"
        cells.append((namespace, name, str(len(names)), allowed, ", ".join(names[:LISTED]) + more))
    return table(("NAMESPACE", "OWNER", "LOSES", "MAY BE UNAVAILABLE", "VMS"), cells, width=width)
