"""Reading our own writes (R9): what a pass wrote for a key, and whether the cache shows it yet.

Nothing is counted and no handler keeps books. A write leaves a watermark, its resourceVersion; a deletion leaves the
UID that must go; a write whose answer was lost leaves the doubt itself. `settled` compares these with the stores, at
the moment somebody asks, as Kubernetes' ConsistencyStore does (1.36). Versions that do not parse prove nothing and
are passed over, and what has no store is not awaited. Five minutes after its last write a key is taken as settled
whatever the cache shows, with a warning: a controller that waits for ever helps nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import structlog

from controller.runtime.plan import (
    AlreadyThere,
    AnyResource,
    Create,
    Delete,
    Done,
    Missing,
    Outcome,
    Patch,
    ThreeWayMerge,
    Unknown,
)
from informers.meta import ObjectKey, controller_of, version_number
from informers.store import StoreView

log = structlog.get_logger()

GIVE_UP_AFTER_S = 300.0

Write: TypeAlias = Create | Delete | Patch | ThreeWayMerge


class _Awaited:
    """What one key waits for. Bound to the owner's UID: a set of the same name made anew starts clean."""

    __slots__ = ("deletions", "owner_uid", "since", "unresolved", "versions")

    def __init__(self, owner_uid: str, since: float) -> None:
        self.owner_uid = owner_uid
        self.since = since
        self.versions: dict[tuple[AnyResource, str], int] = {}
        self.deletions: dict[str, Delete] = {}
        self.unresolved: list[Write] = []

    def __bool__(self) -> bool:
        return bool(self.versions or self.deletions or self.unresolved)


class Expectations:
    """Write watermarks, awaited deletions and unresolved, by key. `now` is monotonic, in seconds.

    `RemoveOwnerReference` leaves no trace here: no cache holds what it writes to, and it does no harm twice.
    """

    def __init__(
        self, stores: Mapping[AnyResource, StoreView[Any]], *, now: Callable[[], float], gave_up: Callable[[], None]
    ) -> None:
        self._stores = stores
        self._now = now
        self._gave_up = gave_up
        self._awaited: dict[ObjectKey, _Awaited] = {}

    def record(self, key: ObjectKey, owner_uid: str, outcomes: Iterable[Outcome]) -> None:
        """Remember what a pass wrote. Call it as soon as the outcomes are known."""
        awaited = self._of(key, owner_uid) or _Awaited(owner_uid, self._now())
        for outcome in outcomes:
            self._note(awaited, outcome)
        if awaited:
            awaited.since = self._now()
            self._awaited[key] = awaited

    def settled(self, key: ObjectKey, owner_uid: str) -> bool:
        """Whether the cache shows everything that was written for this owner."""
        awaited = self._of(key, owner_uid)
        if awaited is not None:
            self._strike_off(awaited)
            if awaited and not self._is_overdue(awaited):
                return False
            if awaited:
                self._give_up(key, awaited)
        self._awaited.pop(key, None)
        return True

    def unresolved(self, key: ObjectKey, owner_uid: str) -> tuple[Write, ...]:
        """The owner's writes whose answer was lost, that the cache has not proved either, and that still matter."""
        awaited = self._of(key, owner_uid)
        if awaited is None or self._is_overdue(awaited):
            return ()
        self._strike_off(awaited)
        return tuple(awaited.unresolved)

    def resolve(self, key: ObjectKey, write: Write, outcome: Outcome | None) -> None:
        """A doubt is over: the write had this outcome, or never happened (None)."""
        if awaited := self._awaited.get(key):
            awaited.unresolved = [doubt for doubt in awaited.unresolved if doubt is not write]
            if outcome is not None:
                self._note(awaited, outcome)

    def forget(self, key: ObjectKey) -> None:
        """The owner is gone."""
        self._awaited.pop(key, None)

    def oldest_s(self) -> float:
        """For how long the key that waits longest has waited; 0 when all are settled."""
        now = self._now()
        return max((now - awaited.since for awaited in self._awaited.values()), default=0.0)

    def _of(self, key: ObjectKey, owner_uid: str) -> _Awaited | None:
        """What is awaited for this owner; nothing that another one of the same name has left."""
        awaited = self._awaited.get(key)
        return awaited if awaited is not None and awaited.owner_uid == owner_uid else None

    def _note(self, awaited: _Awaited, outcome: Outcome) -> None:
        match outcome:
            case Done(action=Delete() as action) | Missing(action=Delete() as action):
                awaited.deletions[action.uid] = action
            case (
                Done(action=(Create() | Patch() | ThreeWayMerge()) as action, version=version)
                | AlreadyThere(action=action, version=version)
            ):
                self._watermark(awaited, action, version)
            case Unknown(action=(Create() | Delete() | Patch() | ThreeWayMerge()) as action):
                awaited.unresolved.append(action)
            case _:
                pass

    def _watermark(self, awaited: _Awaited, write: Write, version: str) -> None:
        number = version_number(version)
        if number is not None:
            scope = (write.resource, write.key.namespace)
            awaited.versions[scope] = max(number, awaited.versions.get(scope, 0))

    def _strike_off(self, awaited: _Awaited) -> None:
        awaited.versions = {scope: v for scope, v in awaited.versions.items() if not self._reached(*scope, v)}
        awaited.deletions = {uid: d for uid, d in awaited.deletions.items() if not self._shows_gone(d)}
        awaited.unresolved = [doubt for doubt in awaited.unresolved if not self._proves(doubt, awaited.owner_uid)]

    def _reached(self, resource: AnyResource, namespace: str, version: int) -> bool:
        store = self._stores.get(resource)
        seen = version_number(store.version(namespace)) if store is not None else None
        return seen is None or seen >= version

    def _shows_gone(self, deletion: Delete) -> bool:
        store = self._stores.get(deletion.resource)
        held = store.get(deletion.key) if store is not None else None
        return held is None or held.metadata.uid != deletion.uid or held.metadata.deletion_timestamp is not None

    def _proves(self, write: Write, owner_uid: str) -> bool:
        """Whether the cache shows that the write happened. A patch it never proves, nor what has no store."""
        store = self._stores.get(write.resource)
        match write:
            case Delete():
                return store is not None and self._shows_gone(write)
            case Create():
                held = store.get(write.key) if store is not None else None
                owner = controller_of(held.metadata) if held is not None else None
                return owner is not None and owner.uid == owner_uid
            case _:
                return False

    def _is_overdue(self, awaited: _Awaited) -> bool:
        return self._now() - awaited.since >= GIVE_UP_AFTER_S

    def _give_up(self, key: ObjectKey, awaited: _Awaited) -> None:
        log.warning(
            "cache did not catch up with own writes, going on",
            namespace=key.namespace,
            name=key.name,
            waited_s=GIVE_UP_AFTER_S,
            versions=len(awaited.versions),
            deletions=len(awaited.deletions),
            unresolved=len(awaited.unresolved),
        )
        self._gave_up()
