"""Deletes wait for a cache that is behind the server (R9, P6, P8).

There are three reasons to compare the cache with the server before a plan deletes something:

- The process has not deleted anything in this namespace. `Expectations` has no record of an earlier leader's deletes.
- The plan chooses the objects (a scale-in), and the changed set or pool is newer than their cache, because each
  resource has its own watch. A user may have marked or deleted another object just before the scale-in.
- The same holds for a set or pool that is being deleted. The garbage collector may delete what the plan lets go.

The comparison is one list of metadata, for all sets and pools that changed before it. Nothing is deleted before the
cache shows each difference. An object that differs for long is a doubt (see `cache_check`).
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.indexes import NAMESPACE
from controller.kubevirt.resources import VMIS, VMS
from controller.runtime.actions import AnyResource, Cause, Delete, Plan, waiting
from controller.runtime.execute.disk_check import Place, metadata_pages
from controller.runtime.result import LOOK_AGAIN_S
from informers.errors import TransportError
from informers.meta import ObjectKey, ObjectMeta, is_older
from informers.objects import ObjectClient
from informers.resource import UNDECODABLE
from informers.store import StoreView

LATE: Final = "the cache does not show all changes on the server yet"

USUAL_S: Final = 1.0
"""A cache usually shows a change in this time, in seconds. A pass waits so long, and looks every `LOOK_S` seconds."""

LOOK_S: Final = 0.02

Shown: TypeAlias = Mapping[AnyResource, str]
"""The newest resourceVersion of each cache."""


class _Comparison(Struct, frozen=True):
    """The list had the resourceVersion `version`, or "". Only the cache had the UIDs `deleted`. `newest` are the
    versions of objects that were newer than the cache. `seen` is the version of the cache that showed all that, or
    None.
    """

    version: str
    deleted: Mapping[ObjectKey, str]
    newest: Mapping[ObjectKey, str]
    seen: str | None = None


class LateCache:
    """Tells whether the deletes of a plan wait. A set or pool that is being deleted frees objects of `finalized`.

    Each store has the index `NAMESPACE`, unless plans only prune its objects.
    """

    def __init__(
        self,
        client: ObjectClient,
        stores: Mapping[AnyResource, StoreView[Any]],
        doubt: Callable[[AnyResource, ObjectKey], None],
        finalized: AnyResource | None = None,
    ) -> None:
        self._client = client
        self._finalized = finalized
        self._stores = stores
        self._doubt = doubt
        self._compared: dict[Place, _Comparison] = {}
        self._locks: dict[Place, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._chosen: dict[ObjectKey, tuple[str, int | None]] = {}
        """The UID and generation of each set or pool whose last deletes knew all that happened before its change."""

    def shown(self, namespace: str) -> Shown:
        """Return the versions of the caches, for `held`. Call it together with the read of the caches."""
        return {resource: store.version(namespace) for resource, store in self._stores.items()}

    async def held(self, plan: Plan, owner: ObjectMeta, shown: Shown) -> Plan | None:
        """Return a plan that waits, if the plan must see changes on the server before it deletes. Raise ApiError."""
        # No decision counts the revisions, so a cache that lags behind causes no wrong deletion of a revision.
        deletes = [each for each in plan.actions if isinstance(each, Delete) and each.cause is not Cause.PRUNING]
        places = {(each.resource, each.key.namespace) for each in deletes if each.resource in self._stores}
        frees = owner.deletion_timestamp is not None and bool(plan.actions)
        if frees and self._finalized is not None:
            places.add((self._finalized, owner.key.namespace))
        if VMIS in self._stores:  # a mark may be on the VMI of a VM (P24)
            places |= {(VMIS, namespace) for resource, namespace in places if resource is VMS}
        chooses = frees or any(each.cause is Cause.UNSPECIFIED for each in deletes)
        generation = owner.uid, owner.generation
        since = owner.resource_version if chooses and self._chosen.get(owner.key) != generation else ""
        in_order = sorted(places, key=lambda each: (each[0].plural, each[1]))
        waits = [await self._wait_s(place, shown[place[0]], since) for place in in_order]
        if chooses:
            self._chosen[owner.key] = generation
        waits_s = max((each for each in waits if each is not None), default=None)
        return None if waits_s is None else replace(waiting(LATE), requeue_after_s=waits_s)

    def forget(self, owner: ObjectKey) -> None:
        self._chosen.pop(owner, None)

    async def _wait_s(self, place: Place, shown: str, since: str) -> float | None:
        """Return when to plan again, in seconds, or None if a plan from the cache with the version `shown` may delete.

        It must know all changes before the version `since`, if not "".
        """
        async with self._locks[place]:
            known = self._compared.get(place)
            if known is None or (is_older(known.version, since) and is_older(shown, since)):
                known = await self._compare(place, shown)
            self._compared[place] = known = self._looked_up(place, known)
        until = asyncio.get_running_loop().time() + USUAL_S
        while known.seen is None and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(LOOK_S)
            self._compared[place] = known = self._looked_up(place, self._compared[place])
        for key in (*known.deleted, *known.newest):
            self._doubt(place[0], key)
        if known.seen is None:
            return LOOK_AGAIN_S
        return 0.0 if is_older(shown, known.seen) else None

    async def _compare(self, place: Place, shown: str) -> _Comparison:
        cached = self._stores[place[0]].by_index(NAMESPACE, place[1])
        present = {each.metadata.key: each.metadata.uid for each in cached if _is_staying(each.metadata)}
        version, staying, newest = "", set[str](), dict[ObjectKey, str]()
        try:
            async for page in metadata_pages(self._client, place):
                version = version or page.metadata.resource_version or ""
                metas = [each.metadata for each in page.items or ()]
                staying |= {meta.uid for meta in metas if _is_staying(meta)}
                newest |= {meta.key: meta.resource_version for meta in metas if is_older(shown, meta.resource_version)}
        except UNDECODABLE as error:
            raise TransportError(f"the answer is not a list: {error}", sent=False) from error
        return _Comparison(version, {key: uid for key, uid in present.items() if uid not in staying}, newest)

    def _looked_up(self, place: Place, known: _Comparison) -> _Comparison:
        """Return the comparison with the differences that the cache does not show yet."""
        if known.seen is not None:
            return known
        store, cached = self._stores[place[0]], self._stores[place[0]].version(place[1])
        staying = ((key, uid, store.get(key)) for key, uid in known.deleted.items())
        deleted = {
            key: uid
            for key, uid, found in staying
            if found is not None and found.metadata.uid == uid and _is_staying(found.metadata)
        }
        newest = {key: version for key, version in known.newest.items() if is_older(cached, version)}
        return replace(known, deleted=deleted, newest=newest, seen=None if deleted or newest else cached)


def _is_staying(meta: ObjectMeta) -> bool:
    return meta.deletion_timestamp is None
