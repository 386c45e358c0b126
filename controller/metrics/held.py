"""The replica sets and pools whose newest plan holds back writes, for the metric `vmherd_held`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from controller.metrics.objects import Held
from controller.runtime.actions import Notice
from informers.meta import ObjectKey

HELD_REASONS: Final = frozenset({"HealingHeld", "RolloutStalled", "ScaleInHeld", "UpdateHeld"})
"""The reasons of notices about writes that must wait. Each plan repeats such a notice until the write may start."""


class HeldOwners:
    """The reasons of each set or pool that holds back writes. Call the methods only on the event loop."""

    def __init__(self) -> None:
        self._reasons: dict[tuple[str, str, str], frozenset[str]] = {}

    def planned(self, owner_kind: str, owner: ObjectKey, notices: Iterable[Notice]) -> None:
        """Replace the reasons of a set or pool by the reasons in its newest plan."""
        reasons = frozenset(notice.reason for notice in notices if notice.reason in HELD_REASONS)
        if reasons:
            self._reasons[owner_kind, *owner] = reasons
        else:
            self.forget(owner_kind, owner)

    def forget(self, owner_kind: str, owner: ObjectKey) -> None:
        self._reasons.pop((owner_kind, *owner), None)

    def reasons(self) -> Held:
        """Return a copy. Any thread may read the copy."""
        return dict(self._reasons)
