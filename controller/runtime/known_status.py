"""The status of a kind whose definition is KubeVirt's: only what that definition knows.

The API server drops every other field without a word. A status that is compared with what was meant would then differ
for ever, and be written again with each pass. So what it drops is neither written nor compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Generic

import msgspec

from controller.runtime.plan import AnyResource, Notice, Outcome, Plan
from controller.runtime.reconciler import Rules, S, StatusUpdate
from informers.meta import KubeObject, ObjectKey
from informers.store import StoreView

KNOWN: Final = frozenset({"replicas", "readyReplicas", "labelSelector", "conditions"})
"""The status fields of both kinds in KubeVirt's CRDs."""


class KnownStatus(Generic[S]):
    """A kind's rules, with their status cut down to what KubeVirt's definition knows."""

    def __init__(self, rules: Rules[S]) -> None:
        self._rules = rules

    @property
    def name(self) -> str:
        return self._rules.name

    @property
    def component(self) -> str:
        return self._rules.component

    @property
    def resource(self) -> AnyResource:
        return self._rules.resource

    @property
    def owners(self) -> StoreView[KubeObject]:
        return self._rules.owners

    def take_snapshot(self, key: ObjectKey, *, now: datetime, settled: bool) -> S | None:
        return self._rules.take_snapshot(key, now=now, settled=settled)

    def plan(self, snapshot: S) -> Plan:
        return self._rules.plan(snapshot)

    def plan_absent(self, key: ObjectKey) -> Plan:
        return self._rules.plan_absent(key)

    def recounted(self, planned: S, latest: S) -> S | None:
        return self._rules.recounted(planned, latest)

    def status_update(self, snapshot: S, outcomes: tuple[Outcome, ...]) -> StatusUpdate | None:
        update = self._rules.status_update(snapshot, outcomes)
        return None if update is None else known_part(update, snapshot.owner)

    def outcome_notices(self, outcomes: Iterable[Outcome]) -> tuple[Notice, ...]:
        return self._rules.outcome_notices(outcomes)

    def rolls_out(self, owner: Any) -> bool:
        return self._rules.rolls_out(owner)


def known_part(update: StatusUpdate, owner: KubeObject) -> StatusUpdate | None:
    """The update without what KubeVirt's definition drops; None where nothing is left that differs."""
    patch: dict[str, Any] = msgspec.json.decode(update.body)
    wanted = _known(patch["status"])
    held = _known(msgspec.json.decode(msgspec.json.encode(getattr(owner, "status", None))) or {})
    if _stated(wanted) == _stated(held):
        return None
    return StatusUpdate(msgspec.json.encode({**patch, "status": wanted}), update.notices)


def _known(status: Mapping[str, object]) -> dict[str, object]:
    return {field: value for field, value in status.items() if field in KNOWN}


def _stated(status: Mapping[str, object]) -> dict[str, object]:
    """Without what says nothing: null takes a field away, and no conditions are as good as none at all."""
    return {field: value for field, value in status.items() if value is not None and value != []}
