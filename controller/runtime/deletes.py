"""Deletes objects, but only while they look as they did when the plan was made.

The cache can be older than the server. Meanwhile a user may have detached or protected an object. So a delete can have
the metadata on which the plan decided. Its resourceVersion is then a precondition of the request. If another writer
changed only the status or the spec, the object is deleted with its new resourceVersion.
"""

from __future__ import annotations

import re
from typing import Final

from controller.runtime.plan import Delete, Done, Missing, Outcome, Rejected
from informers.errors import ApiError, Conflict, NotFound
from informers.meta import ObjectMeta, annotations_of, labels_of
from informers.objects import ObjectClient, read_meta

ATTEMPTS: Final = 4
"""The maximum number of requests for one delete. Another writer may change the object after each read."""

_UID_PRECONDITION: Final = re.compile(r"\bUID in (the )?precondition\b", re.IGNORECASE)


async def perform_delete(client: ObjectClient, action: Delete) -> Outcome:
    """Delete the object. Raise ApiError if the server rejects the request.

    Raise Conflict if the labels, the annotations or the ownerReferences are no longer those in `action.seen`.
    """
    version = action.seen.resource_version if action.seen is not None else ""
    for _ in range(ATTEMPTS - 1):
        try:
            return await _delete_version(client, action, version)
        except Conflict as conflict:
            if action.seen is None or is_uid_mismatch(conflict):
                raise
            try:
                found = read_meta(await client.get(action.resource, action.key))
            except NotFound:
                return Missing(action)
            except ApiError as error:
                # Only the read failed, so nothing was deleted.
                return Rejected(action, error)
            if found.uid != action.uid or found.deletion_timestamp is not None:
                return Missing(action)
            if not _is_same(found, action.seen):
                raise
            version = found.resource_version
    return await _delete_version(client, action, version)


def is_uid_mismatch(error: Conflict) -> bool:
    """Return True if a delete failed because the UID of the object differs from the UID in the delete.

    The API server reports this reason only in the error message. There are two texts: "the UID in the precondition
    (...) does not match ..." and "Precondition failed: UID in precondition: ...".
    """
    return _UID_PRECONDITION.search(str(error)) is not None


async def _delete_version(client: ObjectClient, action: Delete, version: str) -> Outcome:
    propagation = "Foreground" if action.foreground else "Background"
    answer = await client.delete(action.resource, action.key, uid=action.uid, propagation=propagation, version=version)
    return Done(action, read_meta(answer).resource_version)


def _is_same(found: ObjectMeta, seen: ObjectMeta) -> bool:
    """Return True if the plan would have decided the same with the metadata `found`."""
    return (
        labels_of(found) == labels_of(seen)
        and annotations_of(found) == annotations_of(seen)
        and (found.owner_references or ()) == (seen.owner_references or ())
    )
