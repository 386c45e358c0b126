"""Finds contradictions between the caches and the API server. After a contradiction, the resource is listed again.

A watch that loses an event leaves a wrong object in the cache, until the object changes again. An answer that does not
fit the cache, such as a 404 for a cached object, is a *doubt*. If the cache shows the same state after `DOUBT_S`
seconds, the check reads the object from the server. Two answers are a contradiction:

- The object differs from the cache, and the cache claims to show all changes up to the version of the object.
- The object is in the cache, but the server answers 404 to two reads.

An object that is being deleted for `LEAVING_S` seconds without a change is a doubt, too: no program writes to it.

A restore of etcd from a backup is another contradiction, shown by a lease whose version decreases, or a new object that
is older than the cache. After a restore, all resources are listed again.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

import structlog

from controller.runtime.actions import AlreadyThere, AnyResource, Create, Missing, Outcome, Patch, Rejected
from informers.errors import AlreadyExists, ApiError, Conflict, Invalid, NotFound
from informers.informer import SharedInformer
from informers.meta import ObjectKey, ObjectMeta, is_older
from informers.objects import ObjectClient, PatchType, read_meta
from informers.store import Change, Removed

log = structlog.get_logger()

DOUBT_S: Final = 10.0
LEAVING_S: Final = 60.0
PERIOD_S: Final = 5.0
READS: Final = 5
MAX_DOUBTS: Final = 200
"""The maximum number of cached objects that wait for a check. A further object takes the place of the last one."""

RELIST_PAUSE_S: Final = 30.0
"""The shortest time between two lists of a resource that this check requests, in seconds."""

State: TypeAlias = tuple[str, str] | None
"""The UID and the resourceVersion of an object, or None if the object does not exist."""


class _Doubt(NamedTuple):
    """A cached state that may be wrong. `gone` is True after the server has answered 404 once."""

    since: float
    cached: State
    gone: bool = False


class CacheCheck:
    """Collects cached objects that may be wrong, and checks them at intervals, if there are informers."""

    def __init__(self, client: ObjectClient) -> None:
        self._client = client
        self._informers: dict[AnyResource, SharedInformer[Any]] = {}
        self._doubts: dict[tuple[AnyResource, ObjectKey], _Doubt] = {}
        self._leaving: dict[tuple[AnyResource, ObjectKey], float] = {}
        """The cached objects that are being deleted, each with the time of its last change or check."""
        self._not_before: dict[AnyResource | None, float] = {}
        """The earliest time of the next list of each resource. The key None is for all resources after a restore."""

    def watch(self, informers: Iterable[SharedInformer[Any]]) -> None:
        for informer in informers:
            self._informers[informer.resource] = informer
            informer.add_handler(partial(self._follow, informer.resource))

    def _follow(self, resource: AnyResource, change: Change[Any]) -> None:
        meta = (change.last_known if isinstance(change, Removed) else change.new).metadata
        if meta.deletion_timestamp is not None and not isinstance(change, Removed):
            self._leaving[resource, meta.key] = _now()
        elif self._leaving:
            self._leaving.pop((resource, meta.key), None)

    def observe(self, outcome: Outcome) -> None:
        """If the outcome of an action does not fit the cached object, check this object later."""
        match outcome:
            case Missing() | AlreadyThere() | Rejected(error=AlreadyExists() | Conflict() | NotFound()):
                self.doubt(outcome.action.resource, outcome.action.key)
            case Rejected(error=Invalid(), action=Patch(type=PatchType.JSON)):  # a test of the patch may have failed
                self.doubt(outcome.action.resource, outcome.action.key)

    def doubt(self, resource: AnyResource, key: ObjectKey) -> None:
        """Check the cached state of this object later. If no informer has the resource, do nothing."""
        informer = self._informers.get(resource)
        if informer is None:
            return
        state, place = _cached(informer, key), (resource, key)
        known = self._doubts.get(place)
        if known is None and len(self._doubts) >= MAX_DOUBTS:
            self._doubts.popitem()
        if known is None or known.cached != state:
            self._doubts[place] = _Doubt(_now(), state)

    def version(self, create: Create) -> str:
        """Return the newest version in the cache before a create request, for `created`."""
        informer = self._informers.get(create.resource)
        return informer.store.version(create.key.namespace) if informer is not None else ""

    def created(self, create: Create, version: str, *, before: str) -> None:
        """List all resources again if a new object is older than the cache was `before`: the server was restored."""
        if is_older(version, before):
            self.restored(f"the new object {create.key} has version {version}, but the cache already had {before}")

    def restored(self, why: str) -> None:
        """List all resources again, because etcd was restored from a backup. The argument `why` is the proof."""
        if not self._may_list(None):
            return
        log.error("the API server was restored from a backup, listing all resources again", why=why)
        for informer in self._informers.values():
            informer.relist(why, restored=True)

    async def run(self) -> None:
        """Check the collected objects every `PERIOD_S` seconds until the task is cancelled."""
        while True:
            await asyncio.sleep(PERIOD_S)
            late = (place for place, since in self._leaving.items() if _now() - since >= LEAVING_S)
            for place in list(islice(late, READS)):
                self._leaving[place] = _now()
                self.doubt(*place)
            for place in self._due():
                left: _Doubt | None = (doubt := self._doubts.pop(place))
                try:
                    left = await self._checked(*place, doubt)
                except ApiError as error:
                    log.debug("cannot check the cache", why=str(error))
                if left is not None:
                    self._doubts.setdefault(place, left)  # at the end, so that it holds up no other check

    def _due(self) -> list[tuple[AnyResource, ObjectKey]]:
        """Forget the objects that have changed in the cache. Return the first of the others, if their check is due."""
        self._doubts = {
            (resource, key): doubt
            for (resource, key), doubt in self._doubts.items()
            if _cached(self._informers[resource], key) == doubt.cached
        }
        due = [place for place, doubt in self._doubts.items() if _now() - doubt.since >= DOUBT_S]
        return due[:READS]

    async def _checked(self, resource: AnyResource, key: ObjectKey, doubt: _Doubt) -> _Doubt | None:
        """Compare the object on the server with the cache. Return the doubt that is left, or None. Raise ApiError."""
        informer = self._informers[resource]
        found = None
        with suppress(NotFound):
            found = read_meta(await self._client.get(resource, key))
        if _cached(informer, key) != doubt.cached:
            return None
        if found is None and doubt.cached is not None and not doubt.gone:
            # The deletion may have happened directly before the read, so its event may be late.
            return doubt._replace(gone=True)
        seen = informer.store.version(key.namespace)
        why = _contradiction(f"{resource.kind} {key}", doubt.cached, found, seen)
        if why and not self._may_list(resource):
            return doubt
        if why:
            informer.relist(why, namespace=key.namespace)
        return None

    def _may_list(self, resource: AnyResource | None) -> bool:
        now = _now()
        if now < self._not_before.get(resource, now):
            return False
        self._not_before[resource] = now + RELIST_PAUSE_S
        return True


def _contradiction(name: str, cached: State, found: ObjectMeta | None, seen: str) -> str:
    """Return how the cached and the real state differ, or "". `seen` is the newest version in the cache."""
    if found is None:
        return f"the server does not have {name}, but the cache does" if cached is not None else ""
    if cached == (found.uid, found.resource_version) or is_older(seen, found.resource_version):
        return ""
    has = "does not" if cached is None else f"has version {cached[1]}"
    return f"the server has {name} in version {found.resource_version}, but the cache {has}, although it shows {seen}"


def _cached(informer: SharedInformer[Any], key: ObjectKey) -> State:
    obj = informer.store.get(key)
    return None if obj is None else (obj.metadata.uid, obj.metadata.resource_version)


def _now() -> float:
    return asyncio.get_running_loop().time()
