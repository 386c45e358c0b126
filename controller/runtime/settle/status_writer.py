"""The status writer writes the status of a set or pool through the status subresource.

A status is written only after the cache shows the previous status write. Without this rule, a reconciliation could
write the same status twice. The event of the previous status write also starts the reconciliation that writes the next
status.
"""

import asyncio
from typing import Final

from controller.runtime.actions import AnyResource, Done, Patch
from controller.runtime.result import is_outage
from controller.runtime.settle.cache_check import CacheCheck
from controller.runtime.settle.expectations import Expectations
from informers.errors import Conflict, NotFound, StatusError
from informers.meta import ObjectKey, ObjectMeta
from informers.objects import ObjectClient, PatchType, read_meta, read_version
from informers.ratelimit import ItemBackoff

ABSENT_S: Final = 30.0
"""After a 404, the set or pool is left alone for this time in seconds. Before its end, the cache shows the deletion or
lists again, unless the definition was missing for a while.
"""

SHORTEST_CONFLICT_S: Final = 1.0
LONGEST_CONFLICT_S: Final = 30.0
"""For this time in seconds, doubled each time, no status is written: after a 409 from the same cached version, until
the cache shows a newer one or lists again, and after a refusal of the same generation.
"""


class StatusWriter:
    """Writes the statuses of one kind. After a refusal, `check` later compares the cached object with the server.

    `expectations` has only status writes, so that a pending one does not delay creates and deletes.
    """

    def __init__(
        self, client: ObjectClient, resource: AnyResource, expectations: Expectations, check: CacheCheck | None = None
    ) -> None:
        self._client = client
        self._resource = resource
        self._expectations = expectations
        self._check = check or CacheCheck(client)
        self._absent: dict[ObjectKey, tuple[str, str, float]] = {}
        """UID and cached version of what the server does not have or deletes, and the end of this knowledge."""
        self._conflicts: dict[ObjectKey, tuple[str, float]] = {}
        """The version (409) or generation (refused) whose status the server did not take, and the end of the wait."""
        self._backoff = ItemBackoff[ObjectKey](initial_s=SHORTEST_CONFLICT_S, maximum_s=LONGEST_CONFLICT_S)

    def may_write(self, key: ObjectKey, owner: ObjectMeta) -> bool:
        """Return True if the cache shows the last status write, or after five minutes, and no refusal waits."""
        mark, until = self._conflicts.get(key, ("", 0.0))
        if mark not in (owner.resource_version, _generation(owner)):
            self._forget_conflict(key)
        elif asyncio.get_running_loop().time() < until:
            return False
        return self._expectations.settled(key, owner.uid)

    def absent_s(self, key: ObjectKey, owner: ObjectMeta) -> float:
        """Return for how many seconds this owner, which the server lacks or deletes, gets no new members."""
        uid, version, until = self._absent.get(key, ("", "", 0.0))
        left_s = until - asyncio.get_running_loop().time()
        if (uid, version) == (owner.uid, owner.resource_version) and left_s > 0:
            return left_s
        self._absent.pop(key, None)
        return 0.0

    async def write(self, key: ObjectKey, owner: ObjectMeta, body: bytes) -> bytes:
        """Send a merge patch of the status. Return the answer, or nothing if the set or pool has changed or is gone.
        Raise ApiError. `body` must contain the resourceVersion of the cached `owner`: the API server ignores the UID in
        a patch of a status.
        """
        patch = Patch(resource=self._resource, key=key, body=body, type=PatchType.MERGE, why="status")
        try:
            answer = await self._client.patch(
                self._resource, key, body, content_type=PatchType.MERGE.value, subresource="status"
            )
        except StatusError as error:
            now, is_stale = asyncio.get_running_loop().time(), isinstance(error, NotFound | Conflict)
            if is_stale:
                self._check.doubt(self._resource, key)
            if isinstance(error, NotFound) or (is_stale and await self._is_ending(key)):
                self._absent[key] = owner.uid, owner.resource_version, now + ABSENT_S
            elif not is_outage(error):
                mark = owner.resource_version if is_stale else _generation(owner)
                self._conflicts[key] = mark, now + self._backoff.delay(key, now)
            if is_stale:
                return b""
            raise
        self._forget_conflict(key)
        self._expectations.record(key, owner.uid, [Done(patch, read_version(answer))])
        return answer

    async def _is_ending(self, key: ObjectKey) -> bool:
        """Return True if the server is deleting the set or pool, and the cache does not show it."""
        try:
            found = read_meta(await self._client.get(self._resource, key))
        except StatusError as error:
            return isinstance(error, NotFound)
        return found.deletion_timestamp is not None

    def forget(self, key: ObjectKey) -> None:
        self._expectations.forget(key)
        self._absent.pop(key, None)
        self._forget_conflict(key)

    def _forget_conflict(self, key: ObjectKey) -> None:
        self._conflicts.pop(key, None)
        self._backoff.forget(key)


def _generation(owner: ObjectMeta) -> str:
    return f"generation {owner.generation}"
