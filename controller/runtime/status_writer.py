"""Writes the status of an owner through the status subresource.

If the cache does not show our last status write yet, the next pass would write the same status again. So a status is
written only after the cache shows the previous status write. The event of that write also starts the next pass. This
limits the status writes of a busy set to one for each round trip, even if many of its VMs change.
"""

from __future__ import annotations

from controller.runtime.expectations import Expectations
from controller.runtime.plan import AnyResource, Done, Patch
from informers.errors import Conflict, NotFound
from informers.meta import ObjectKey
from informers.objects import ObjectClient, PatchType, read_meta


class StatusWriter:
    """Writes the statuses of one kind of owner.

    `expectations` are only for status writes. They are separate from those of the executor, so a status write that the
    cache does not show yet does not delay creates and deletes.
    """

    def __init__(self, client: ObjectClient, resource: AnyResource, expectations: Expectations) -> None:
        self._client = client
        self._resource = resource
        self._expectations = expectations

    def may_write(self, key: ObjectKey, owner_uid: str) -> bool:
        """True if the cache shows this owner's last status write."""
        return self._expectations.settled(key, owner_uid)

    async def write(self, key: ObjectKey, owner_uid: str, body: bytes) -> bool:
        """Send a merge patch of the status. Returns False if the owner has changed, was deleted, or was replaced by
        another owner of the same name.

        The patch must contain the resourceVersion of the owner that the status was made from. The API server ignores
        the UID in a patch of a status, so without the resourceVersion another owner of the same name could get this
        status. Raises ApiError.
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
