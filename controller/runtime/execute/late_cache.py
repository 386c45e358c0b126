"""Deletes wait for a cache that is behind the server (R9, P8).

There are two reasons to compare the cache with the server before a plan deletes something:

- The process has not deleted anything in this namespace. `Expectations` has no record of an earlier leader's deletes.
- The plan chooses the objects (a scale-in), and the changed set or pool is newer than their cache, because each
  resource has its own watch. A user may have marked or deleted another object just before the scale-in.

The comparison is one list of metadata. Nothing is deleted before the cache shows each difference. An object that
differs for long is a doubt (see `cache_check`).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.indexes import NAMESPACE
from controller.runtime.actions import AnyResource, Cause, Delete, Plan, waiting
from controller.runtime.execute.disk_check import Place, metadata_pages
from informers.errors import TransportError
from informers.meta import ObjectKey, ObjectMeta, is_older
from informers.objects import ObjectClient
from informers.resource import UNDECODABLE
from informers.store import StoreView

Shown: TypeAlias = Mapping[AnyResource, str]
"""The newest resourceVersion of each cache."""

LATE: Final = "the cache does not show all changes on the server yet"


class _Comparison(Struct, frozen=True):
    """`deleted` are the UIDs of objects that only the cache had. `newest` are the versions of objects that are newer
    than the cache.
    """

    deleted: Mapping[ObjectKey, str]
    newest: Mapping[ObjectKey, str]


class LateCache:
    """Tells whether the deletes of a plan wait.

    Each store has the index `NAMESPACE`, unless plans only prune its objects.
    """

    def __init__(
        self,
        client: ObjectClient,
        stores: Mapping[AnyResource, StoreView[Any]],
        doubt: Callable[[AnyResource, ObjectKey], None],
    ) -> None:
        self._client = client
        self._stores = stores
        self._doubt = doubt
        self._compared: dict[Place, _Comparison] = {}
        self._chosen: dict[ObjectKey, tuple[str, int | None]] = {}
        """The UID and generation of each set or pool whose last scale-in knew all that happened before its change."""

    def shown(self, namespace: str) -> Shown:
        """Return the versions of the caches, for `must_wait`. Call it together with the read of the caches."""
        return {resource: store.version(namespace) for resource, store in self._stores.items()}

    async def held(self, plan: Plan, owner: ObjectMeta, shown: Shown) -> Plan | None:
        """Return a plan that waits, if the plan of this set or pool must see changes on the server before it deletes.
        Raise ApiError.
        """
        # No decision counts the revisions, so a cache that lags behind causes no wrong deletion of a revision.
        deletes = [each for each in plan.actions if isinstance(each, Delete) and each.cause is not Cause.PRUNING]
        places = {(each.resource, each.key.namespace) for each in deletes if each.resource in self._stores}
        chooses = owner.deletion_timestamp is None and any(each.cause is Cause.UNSPECIFIED for each in deletes)
        generation = owner.uid, owner.generation
        is_new = chooses and self._chosen.get(owner.key) != generation
        is_late = is_stale = False
        for place in places:
            resource, namespace = place
            if place not in self._compared or (is_new and is_older(shown[resource], owner.resource_version)):
                self._compared[place] = await self._compare(place, shown[resource])
                # The plan does not know what has come into the cache since then, so it is made again at once.
                is_stale |= self._stores[resource].version(namespace) != shown[resource]
            is_late |= self._is_late(place, shown[resource])
        if chooses:
            self._chosen[owner.key] = generation
        if is_late:
            return waiting(LATE)
        return replace(waiting(LATE), requeue_after_s=0) if is_stale else None

    def forget(self, owner: ObjectKey) -> None:
        self._chosen.pop(owner, None)

    def _is_late(self, place: Place, shown: str) -> bool:
        known = self._compared[place]
        deleted = {key: uid for key, uid in known.deleted.items() if self._has(place, key, uid)}
        newest = {key: version for key, version in known.newest.items() if is_older(shown, version)}
        self._compared[place] = replace(known, deleted=deleted, newest=newest)
        different = [*deleted, *newest]
        for key in different:
            self._doubt(place[0], key)
        return bool(different)

    async def _compare(self, place: Place, shown: str) -> _Comparison:
        cached = self._stores[place[0]].by_index(NAMESPACE, place[1])
        present = {each.metadata.key: each.metadata.uid for each in cached if _is_staying(each.metadata)}
        staying, newest = set[str](), dict[ObjectKey, str]()
        try:
            async for page in metadata_pages(self._client, place):
                metas = [each.metadata for each in page.items or ()]
                staying |= {meta.uid for meta in metas if _is_staying(meta)}
                newest |= {meta.key: meta.resource_version for meta in metas if is_older(shown, meta.resource_version)}
        except UNDECODABLE as error:
            raise TransportError(f"the answer is not a list: {error}", sent=False) from error
        return _Comparison({key: uid for key, uid in present.items() if uid not in staying}, newest)

    def _has(self, place: Place, key: ObjectKey, uid: str) -> bool:
        found = self._stores[place[0]].get(key)
        return found is not None and found.metadata.uid == uid and _is_staying(found.metadata)


def _is_staying(meta: ObjectMeta) -> bool:
    return meta.deletion_timestamp is None
