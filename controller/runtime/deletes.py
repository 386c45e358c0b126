"""Deletes an object only if the object still belongs to its owner (G3).

The plan is made from the cache. In the meantime, a user may have detached the object, to keep it. So a delete request
has the resourceVersion in the cache as a precondition. If the object has changed, the executor reads it from the
server. The executor deletes the new version only if the object still has its owner.
"""

from __future__ import annotations

import re
from typing import Final

from controller.runtime.plan import Delete, Done, Member, Missing, Outcome, Rejected
from informers.errors import ApiError, Conflict, NotFound
from informers.meta import ObjectMeta, controller_of
from informers.objects import ObjectClient, read_meta, read_version

ATTEMPTS: Final = 4
"""The maximum number of attempts to delete one object. An attempt fails if another writer changes the object after the
read.
"""

_UID_PRECONDITION: Final = re.compile(r"\bUID in (the )?precondition\b", re.IGNORECASE)


async def perform_delete(client: ObjectClient, action: Delete) -> Outcome:
    """Delete the object. Return `Missing` if the object is gone or does not belong to its owner any more.

    Return `Rejected` if the object has lost the finalizer of the action. If the object has changed in another way, the
    delete request is sent again. Raise ApiError if a delete request fails for another reason, or if the last attempt
    fails.
    """
    if action.member is not None and (problem := await membership_error(client, action.member)) is not None:
        return Rejected(action, problem)
    version = action.version
    for attempts_left in reversed(range(ATTEMPTS)):
        try:
            return await _delete(client, action, version)
        except Conflict as error:
            if is_uid_mismatch(error):
                return Missing(action)
            if not (action.owner_uid and version and attempts_left):
                raise
        try:
            found = read_meta(await client.get(action.resource, action.key))
        except NotFound:
            return Missing(action)
        except ApiError as error:
            # Only the read failed, so nothing was deleted, even if the answer was lost.
            return Rejected(action, error)
        if not _is_deletable(found, action):
            return Missing(action)
        if action.finalizer and action.finalizer not in (found.finalizers or ()):
            return Rejected(action, Conflict(f"{action.key} has no finalizer {action.finalizer} any more", code=409))
        version = found.resource_version
    raise AssertionError("the last attempt returns or raises")


async def membership_error(client: ObjectClient, member: Member) -> ApiError | None:
    """Return a Conflict if the VM has left its pool, or the error if the VM cannot be read. Otherwise return None.

    A user may have just detached the VM, to keep its VMI running.
    """
    try:
        found = read_meta(await client.get(member.resource, member.key))
    except NotFound:
        return Conflict(f"{member.key} was deleted", code=409)
    except ApiError as error:
        return error
    owner = controller_of(found)
    if found.uid != member.uid or owner is None or owner.uid != member.owner_uid:
        return Conflict(f"{member.key} has left its pool", code=409)
    return None


async def _delete(client: ObjectClient, action: Delete, version: str) -> Outcome:
    propagation = "Foreground" if action.foreground else "Background"
    answer = await client.delete(action.resource, action.key, uid=action.uid, propagation=propagation, version=version)
    return Done(action, read_version(answer))


def _is_deletable(found: ObjectMeta, action: Delete) -> bool:
    """Return True if the object still has the UID and the owner in `action`, and is not being deleted."""
    owner = controller_of(found)
    is_owned = owner is not None and owner.uid == action.owner_uid
    return is_owned and found.uid == action.uid and found.deletion_timestamp is None


def is_uid_mismatch(error: Conflict) -> bool:
    """Return True if the UID of the object differs from the UID in a failed delete request."""
    return _UID_PRECONDITION.search(str(error)) is not None
