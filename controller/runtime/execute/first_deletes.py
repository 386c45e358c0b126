"""Before its first delete in a namespace, a process compares its cache with the server (R9).

`Expectations` has no record of an earlier leader's writes. If the cache lags, a VM that it deleted still counts, and a
scale-in might choose another VM, which has not changed, and delete one too many.

The comparison is one list of metadata for each resource and namespace in the life of the process. It begins after the
election, so it shows all deletes of the predecessor. An object that the cache still has then is a doubt (see
`cache_check`).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from controller.apimachinery.indexes import NAMESPACE
from controller.runtime.actions import AnyResource, Cause, Delete, Plan
from controller.runtime.execute.disk_check import Place, metadata_pages
from informers.errors import TransportError
from informers.meta import ObjectKey, ObjectMeta
from informers.objects import ObjectClient
from informers.resource import UNDECODABLE
from informers.store import StoreView

LATE: Final = "the cache does not show all deletes of an earlier leader yet"


class FirstDeletes:
    """Tells whether deletes wait until the cache shows those of an earlier process.

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
        self._deleted: dict[Place, dict[ObjectKey, str]] = {}
        """For each compared namespace: the UIDs of the objects that were in the cache, but deleted on the server."""

    async def must_wait(self, plan: Plan) -> bool:
        """Return True if the cache shows an object that an earlier process has deleted. Raise ApiError."""
        # No decision counts the revisions, so a cache that lags behind causes no wrong deletion of a revision.
        deletes = (each for each in plan.actions if isinstance(each, Delete) and each.cause is not Cause.PRUNING)
        places = {(each.resource, each.key.namespace) for each in deletes if each.resource in self._stores}
        return any([await self._is_late(place) for place in places])

    async def _is_late(self, place: Place) -> bool:
        if place not in self._deleted:
            resource, namespace = place
            cached = [each.metadata for each in self._stores[resource].by_index(NAMESPACE, namespace)]
            present = {meta.key: meta.uid for meta in cached if _is_staying(meta)}
            staying = await self._staying(place)
            self._deleted[place] = {key: uid for key, uid in present.items() if uid not in staying}
        self._deleted[place] = {key: uid for key, uid in self._deleted[place].items() if self._shows(place, key, uid)}
        for key in self._deleted[place]:
            self._doubt(place[0], key)
        return bool(self._deleted[place])

    def _shows(self, place: Place, key: ObjectKey, uid: str) -> bool:
        found = self._stores[place[0]].get(key)
        return found is not None and found.metadata.uid == uid and _is_staying(found.metadata)

    async def _staying(self, place: Place) -> set[str]:
        """Return the UIDs of the objects on the server that are not being deleted."""
        found: set[str] = set()
        try:
            async for page in metadata_pages(self._client, place):
                found |= {each.metadata.uid for each in page.items or () if _is_staying(each.metadata)}
        except UNDECODABLE as error:
            raise TransportError(f"the answer is not a list: {error}", sent=False) from error
        return found


def _is_staying(meta: ObjectMeta) -> bool:
    return meta.deletion_timestamp is None
