"""The list of all cases, and the selection of cases by kind and by pattern."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from conformance.case import Case, Kind
from conformance.cases import (
    pool_disks,
    pool_healing,
    pool_members,
    pool_scaling,
    pool_updates,
    set_members,
    set_scaling,
    shared_reports,
    shared_scaling,
)

MODULES: Final = (
    *(shared_scaling, shared_reports, set_scaling, set_members),
    *(pool_scaling, pool_members, pool_updates, pool_disks, pool_healing),
)
CASES: Final[tuple[Case, ...]] = tuple(case for kind in Kind for module in MODULES for case in module.cases.of(kind))
STORIES: Final = (
    *("*-bring-up", "*-replace-*", "*-rolling-update", "*-rollback", "*-drain", "pool-disk-*", "pool-heal-*"),
    *("pool-claim*", "pool-standby", "pool-live-*", "pool-update-*", "pool-max-unavailable", "pool-delete-running"),
)
"""Patterns of the cases whose result depends on guests that boot, and on disks, nodes and migrations."""


def select(
    cases: Sequence[Case], *, kind: Kind | None = None, only: Sequence[str] = (), skip: Sequence[str] = ()
) -> list[Case]:
    """Return the cases of a kind that match `only` (or all) and not `skip`. Raises ValueError for a useless pattern."""
    for pattern in (*only, *skip):
        if not any(matches(case, pattern) for case in cases):
            raise ValueError(f"no case matches {pattern!r}")
    return [
        case
        for case in cases
        if (kind is None or case.kind is kind)
        and (not only or any(matches(case, pattern) for pattern in only))
        and not any(matches(case, pattern) for pattern in skip)
    ]


def matches(case: Case, pattern: str) -> bool:
    """Return True if the shell pattern matches the id of the case, or is the number of a rule that it checks."""
    return fnmatchcase(case.id, pattern) or pattern in case.rules.split()
