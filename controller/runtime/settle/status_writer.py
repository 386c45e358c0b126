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
"""After a 404, the set or pool is left alone for this time in seconds.

Before its end, the cache shows the deletion, or the cache check lists again. So it ends only if the set or pool exists,
for example if its definition was missing for a while.
"""

SHORTEST_CONFLICT_S: Final = 1.0
LONGEST_CONFLICT_S: Final = 30.0
"""After the server has answered 409, no status is written from the same cached version for a time in seconds. After it
has refused a status, none of the same generation is written.

After a 409, the cached version is probably old. The cache soon shows a newer version, or the cache check lists again.
With each further answer of this kind, the time doubles, up to `LONGEST_CONFLICT_S`.
"""


class StatusWriter:
    """Writes the statuses of one kind, such as pools.

    `expectations` contains only status writes. The executor has separate expectations. So a pending status write does
    not delay create and delete requests. If a status write is rejected, `check` later compares the cached object with
    the server.
    """

    def __init__(
        self,
        client: ObjectClient,
        resource: AnyResource,
        expectations: Expectations,
        check: CacheCheck | None = None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._expectations = expectations
        self._check = check or CacheCheck(client)
        self._absent: dict[ObjectKey, tuple[str, str, float]] = {}
        """The UID and the cached version of each set or pool that the server does not have or is deleting, and the time
        at which this knowledge expires.
        """
        self._conflicts: dict[ObjectKey, tuple[str, float]] = {}
        """The cached version (409) or the generation (refused) whose status the server did not take, and the end of the
        time without a status of it.
        """
        self._backoff = ItemBackoff[ObjectKey](initial_s=SHORTEST_CONFLICT_S, maximum_s=LONGEST_CONFLICT_S)

    def may_write(self, key: ObjectKey, owner: ObjectMeta) -> bool:
        """Return True if the cache shows the last status write of this set or pool, and the cached version is not old.

        Return True also if that write is at least five minutes old. Return False for a time after the server has
        answered 409 to a status of this cached version, or has refused one of this generation.
        """
        mark, until = self._conflicts.get(key, ("", 0.0))
        if mark not in (owner.resource_version, _generation(owner)):
            self._forget_conflict(key)
        elif asyncio.get_running_loop().time() < until:
            return False
        return self._expectations.settled(key, owner.uid)

    def absent_s(self, key: ObjectKey, owner: ObjectMeta) -> float:
        """Return for how many seconds the set or pool is left alone, because the server does not have it or deletes it.

        Until the cache shows it as deleted, the controller would create members that the garbage collector deletes at
        once.
        """
        uid, version, until = self._absent.get(key, ("", "", 0.0))
        left_s = until - asyncio.get_running_loop().time()
        if (uid, version) == (owner.uid, owner.resource_version) and left_s > 0:
            return left_s
        self._absent.pop(key, None)
        return 0.0

    async def write(self, key: ObjectKey, owner: ObjectMeta, body: bytes) -> bool:
        """Send a merge patch of the status, and return True if the server accepted the patch.

        Return False if the set or pool has changed or was deleted. Return False also if another object has its name
        now. Raise ApiError for any other error.

        `owner` is the cached set or pool from which the status was computed. `body` must contain its resourceVersion.
        The API server ignores the UID in a patch of a status. Without the resourceVersion, another object of the same
        name could get this status.
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
                return False
            raise
        self._forget_conflict(key)
        self._expectations.record(key, owner.uid, [Done(patch, read_version(answer))])
        return True

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
