"""Expectations (R9) record the writes for each key, and tell whether the cache already shows all of these writes.

Each write adds a record:

- for a create request or a patch, the resourceVersion in the answer
- for a restart or a pause, the resourceVersion of the object after the request
- for a delete request, the UID of the object
- for a patch that removes a finalizer, also the UID of the object and the finalizer
- for a write whose answer was lost, the write itself

`settled` compares the records with the stores, like the ConsistencyStore of Kubernetes 1.36, without event handlers. It
ignores a resourceVersion that cannot be parsed. A write without a store is recorded only if its answer was lost.

Five minutes after its last write, a key always counts as settled, with a warning: it must not wait for ever. If a
deletion or the removal of a finalizer is not shown after 20 seconds, the object is compared (see `cache_check`).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import structlog
from msgspec import Struct

from controller.runtime.actions import (
    AlreadyThere,
    AnyResource,
    Create,
    Delete,
    Done,
    Missing,
    Outcome,
    Patch,
    Pause,
    Restart,
    ThreeWayMerge,
    Unknown,
)
from informers.meta import ObjectKey, controller_of, is_controlled_by, version_number
from informers.store import StoreView

log = structlog.get_logger()

GIVE_UP_AFTER_S = 300.0
LATE_S = 20.0
Write: TypeAlias = Create | Delete | Patch | ThreeWayMerge | Restart | Pause


class _Awaited(Struct):
    """The writes of one key, the last at `since`, that the cache does not show, for the owner `owner_uid`."""

    owner_uid: str
    since: float
    rewinds: int
    versions: dict[tuple[AnyResource, str], int] = {}
    deletions: dict[str, Delete] = {}
    removals: dict[str, tuple[Patch, int]] = {}
    """The patches that remove finalizers, with the versions in the answers, by the UID of the object."""
    unresolved: list[Write] = []

    def __bool__(self) -> bool:
        return bool(self.versions or self.deletions or self.removals or self.unresolved)


class Expectations:
    """For each key, the writes that the cache does not show yet. `now` returns seconds of a monotonic clock.

    A `RemoveOwnerReference` is not recorded: no cache shows it, and it can be repeated without harm.
    """

    def __init__(
        self,
        stores: Mapping[AnyResource, StoreView[Any]],
        *,
        now: Callable[[], float],
        gave_up: Callable[[], None],
        doubt: Callable[[AnyResource, ObjectKey], None] = lambda _resource, _key: None,
    ) -> None:
        self._stores = stores
        self._now = now
        self._gave_up = gave_up
        self._doubt = doubt
        self._awaited: dict[ObjectKey, _Awaited] = {}

    def record(self, key: ObjectKey, owner_uid: str, outcomes: Iterable[Outcome]) -> None:
        awaited = self._of(key, owner_uid) or _Awaited(owner_uid, self._now(), self._rewinds())
        for outcome in outcomes:
            self._add(awaited, outcome)
        if awaited:
            awaited.since = self._now()
            self._awaited[key] = awaited

    def settled(self, key: ObjectKey, owner_uid: str) -> bool:
        """Return True if the cache shows all writes for this set or pool, or the last is five minutes old."""
        awaited = self._of(key, owner_uid)
        if awaited is not None:
            self._remove_confirmed(awaited)
            if awaited and not self._is_overdue(awaited):
                self._doubt_late(awaited)
                return False
            if awaited:
                self._give_up(key, awaited)
        self._awaited.pop(key, None)
        return True

    def unresolved(self, key: ObjectKey, owner_uid: str) -> tuple[Write, ...]:
        """Return the writes of the last five minutes whose answer was lost, if the cache does not show them yet."""
        awaited = self._of(key, owner_uid)
        if awaited is None or self._is_overdue(awaited):
            return ()
        self._remove_confirmed(awaited)
        return tuple(awaited.unresolved)

    def resolve(self, key: ObjectKey, write: Write, outcome: Outcome | None) -> None:
        """Record the outcome of a write whose answer was lost. The outcome None means that the write did not happen."""
        if awaited := self._awaited.get(key):
            awaited.unresolved = [other for other in awaited.unresolved if other is not write]
            if outcome is not None:
                self._add(awaited, outcome)

    def unsettled(self) -> list[ObjectKey]:
        """Return the keys with writes that the cache does not show yet, and that are less than five minutes old."""
        for awaited in self._awaited.values():
            self._remove_confirmed(awaited)
        rewinds = self._rewinds()
        awaited_keys = [(key, awaited) for key, awaited in self._awaited.items() if not self._is_overdue(awaited)]
        return [key for key, awaited in awaited_keys if awaited and awaited.rewinds == rewinds]

    def forget(self, key: ObjectKey) -> None:
        self._awaited.pop(key, None)

    def oldest_s(self) -> float:
        """Return the seconds since the last write of the key that has waited longest for the cache, or 0."""
        now = self._now()
        return max((now - awaited.since for awaited in self._awaited.values()), default=0.0)

    def _of(self, key: ObjectKey, owner_uid: str) -> _Awaited | None:
        """Return the expectations of this set or pool, or None. A restore from a backup may have undone the writes."""
        awaited = self._awaited.get(key)
        if awaited is not None and awaited.rewinds != self._rewinds():
            del self._awaited[key]
            return None
        return awaited if awaited is not None and awaited.owner_uid == owner_uid else None

    def _rewinds(self) -> int:
        return sum(store.rewinds for store in self._stores.values())

    def _add(self, awaited: _Awaited, outcome: Outcome) -> None:
        match outcome:
            case Done(action=Delete() as action) | Missing(action=Delete() as action):
                awaited.deletions[action.uid] = action
            case Missing(action=Patch(uid=uid) as action) if uid:
                # The server has answered 404. Other actions are `Missing` too if the object has left its owner.
                awaited.deletions[uid] = Delete(resource=action.resource, key=action.key, uid=uid, why=action.why)
            case Done(action=Patch(finalizer=finalizer) as action, version=version) if finalizer:
                awaited.removals[action.uid] = action, version_number(version) or 0
                self._watermark(awaited, action, version)
            case (
                Done(action=(Create() | Patch() | ThreeWayMerge() | Restart() | Pause()) as action, version=version)
                | AlreadyThere(action=action, version=version)
            ):
                self._watermark(awaited, action, version)
            case Unknown(action=(Create() | Delete() | Patch() | ThreeWayMerge() | Restart() | Pause()) as action):
                awaited.unresolved.append(action)

    def _watermark(self, awaited: _Awaited, write: Write, version: str) -> None:
        number = version_number(version)
        if number is not None:
            scope = (write.resource, write.key.namespace)
            awaited.versions[scope] = max(number, awaited.versions.get(scope, 0))

    def _remove_confirmed(self, awaited: _Awaited) -> None:
        awaited.versions = {scope: v for scope, v in awaited.versions.items() if not self._reached(*scope, v)}
        awaited.deletions = {uid: d for uid, d in awaited.deletions.items() if not self._shows_deletion(d)}
        awaited.removals = {uid: each for uid, each in awaited.removals.items() if not self._shows_removal(*each)}
        awaited.unresolved = [write for write in awaited.unresolved if not self._shows(write, awaited.owner_uid)]

    def _reached(self, resource: AnyResource, namespace: str, version: int) -> bool:
        store = self._stores.get(resource)
        seen = version_number(store.version(namespace)) if store is not None else None
        return seen is None or seen >= version

    def _shows_deletion(self, deletion: Delete) -> bool:
        """Return True if the object is gone, is being deleted, or does not belong to its owner any more."""
        store = self._stores.get(deletion.resource)
        cached = store.get(deletion.key) if store is not None else None
        if cached is None or cached.metadata.uid != deletion.uid or cached.metadata.deletion_timestamp is not None:
            return True
        owner = controller_of(cached.metadata)
        return bool(deletion.owner_uid) and (owner is None or owner.uid != deletion.owner_uid)

    def _shows_removal(self, patch: Patch, version: int) -> bool:
        """Return True if the object is gone, does not have the finalizer any more, or is newer than the answer."""
        store = self._stores.get(patch.resource)
        cached = store.get(patch.key) if store is not None else None
        if cached is None or cached.metadata.uid != patch.uid:
            return True
        is_newer = (version_number(cached.metadata.resource_version) or 0) > version
        return is_newer or patch.finalizer not in (cached.metadata.finalizers or ())

    def _shows(self, write: Write, owner_uid: str) -> bool:
        """Return True if the cache shows that the write happened. Nothing in it can prove a patch or a restart."""
        store = self._stores.get(write.resource)
        match write:
            case Delete():
                return store is not None and self._shows_deletion(write)
            case Create():
                cached = store.get(write.key) if store is not None else None
                return cached is not None and is_controlled_by(cached.metadata, owner_uid)
            case _:
                return False

    def _is_overdue(self, awaited: _Awaited) -> bool:
        return self._now() - awaited.since >= GIVE_UP_AFTER_S

    def _doubt_late(self, awaited: _Awaited) -> None:
        if self._now() - awaited.since >= LATE_S:
            patches = (patch for patch, _ in awaited.removals.values())
            late: tuple[Delete | Patch, ...] = (*awaited.deletions.values(), *patches)
            for write in late:
                self._doubt(write.resource, write.key)

    def _give_up(self, key: ObjectKey, awaited: _Awaited) -> None:
        log.warning(
            "cache does not show own writes in time, continuing without them",
            namespace=key.namespace,
            name=key.name,
            waited_s=GIVE_UP_AFTER_S,
            versions=len(awaited.versions),
            deletions=len(awaited.deletions),
            unresolved=len(awaited.unresolved),
        )
        self._gave_up()
