"""Writes a status through its subresource: only when it differs, and never on top of a write not yet seen.

A cache that does not show our last status write yet would make the next pass write the same again. So a status waits
until the cache has caught up with the one before it; the event that brings it wakes the key. That also bounds how
often a busy set writes its status: once for each round trip, however many of its VMs change.
"""

from __future__ import annotations

from controller.runtime.expectations import Expectations
from controller.runtime.plan import AnyResource, Done, Patch
from informers.errors import Conflict, NotFound
from informers.meta import ObjectKey
from informers.objects import ObjectClient, PatchType, read_meta


class StatusWriter:
    """For one kind of owner. `expectations` is its own: a status in flight holds back no create and no delete."""

    def __init__(self, client: ObjectClient, resource: AnyResource, expectations: Expectations) -> None:
        self._client = client
        self._resource = resource
        self._expectations = expectations

    def may_write(self, key: ObjectKey, owner_uid: str) -> bool:
        """Whether the cache shows this owner's last status write."""
        return self._expectations.settled(key, owner_uid)

    async def write(self, key: ObjectKey, owner_uid: str, body: bytes) -> bool:
        """Send a merge patch of the status. False when the owner has changed, or is gone, or is another by now.

        The patch has to name the resourceVersion it was made for: the server passes over a UID in a patch of a status,
        and what is meant for one owner would end up in the next one of that name. Raises ApiError.
        """
        patch = Patch(resource=self._resource, key=key, body=body, type=PatchType.MERGE, why="status")
        try:
            answer = await self._client.patch(
                self._resource, key, body, content_type=PatchType.MERGE.value, subresource="status"
            )
        except (NotFound, Conflict):
            return False
        self._expectations.record(key, owner_uid, [Done(patch, read_meta(answer).resource_version)])
        return True

    def forget(self, key: ObjectKey) -> None:
        self._expectations.forget(key)
