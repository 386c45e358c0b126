"""Deletes an object only if the reason to delete it still holds on the server (G3, P20).

The plan is made from the cache, but a user may have just detached or protected the object. So the request has the
cached resourceVersion as a precondition. An object that has changed is read again, and deleted only if it still has its
owner, and if the judge of the kind finds no obstacle.

The server may also have to accept the successor of an object before the object is deleted. Admission policies, webhooks
and quotas judge a create with `dryRun=All` like a real one. The name is still in use, and names are compared after
admission, so AlreadyExists is expected. Otherwise the answer shows what policies change.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias

from controller.runtime.actions import (
    Action,
    AnyResource,
    Delete,
    Done,
    Missing,
    Outcome,
    Patch,
    Pause,
    Rejected,
    Restart,
    SuccessorRefused,
    ThreeWayMerge,
)
from controller.runtime.execute.patches import error_of_labels
from informers.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound
from informers.meta import ObjectKey, is_controlled_by
from informers.objects import ObjectClient, read_meta, read_version

ATTEMPTS: Final = 4
_UID_PRECONDITION: Final = re.compile(r"\bUID in (the )?precondition\b", re.IGNORECASE)
_FULL: Final = "exceeded quota: "
_QUOTA: Final = re.compile(rf"{_FULL}\S++ requested: (\S++) used: (\S++) limited: (\S++)")

Found: TypeAlias = Mapping[AnyResource, bytes]
"""Objects of the same name as the server has them now. A resource without such an object is absent."""


Judged: TypeAlias = Delete | Restart | Patch | ThreeWayMerge | Pause


class Judge(NamedTuple):
    """`obstacle` returns why not to act on the objects of `resources` on the server, or "". `now` is the wall clock."""

    resources: tuple[AnyResource, ...] = ()
    obstacle: Callable[[Judged, Found, datetime], str] = lambda _action, _found, _now: ""
    now: Callable[[], datetime] = lambda: datetime.min.replace(tzinfo=UTC)

    def reason(self, action: Judged, found: Found) -> str:
        return self.obstacle(action, found, self.now())


NO_JUDGE: Final = Judge()


class Obstructed(Conflict):
    """Nothing was sent: the objects on the server forbid the request by now. The next plan sees why."""


async def perform_delete(client: ObjectClient, action: Delete, judge: Judge = NO_JUDGE) -> Outcome:
    """Delete the object, again after a harmless change. Return `Missing` if it is gone or has another owner. Raise
    ApiError.
    """
    if action.member is not None and (problem := await member_error(client, action, {}, judge)) is not None:
        return Rejected(action, problem)
    if action.successor:
        if (problem := await successor_error(client, action)) is not None:
            return SuccessorRefused(action, problem)
        if (problem := await _neighbour_error(client, action, judge)) is not None:
            return Rejected(action, problem)
    version, propagation = action.version, "Foreground" if action.foreground else "Background"
    for attempts_left in reversed(range(ATTEMPTS)):
        try:
            answer = await client.delete(
                action.resource, action.key, uid=action.uid, propagation=propagation, version=version
            )
            return Done(action, read_version(answer))
        except Conflict as error:
            if _UID_PRECONDITION.search(str(error)) is not None:
                return Missing(action)
            if not (action.owner_uid and version and attempts_left):
                raise
        try:
            found = await _read(client, action.key, dict.fromkeys((action.resource, *judge.resources)))
            meta = read_meta(found[action.resource]) if action.resource in found else None
        except ApiError as error:
            # Only the read failed, so nothing was deleted, even if the answer was lost.
            return Rejected(action, error)
        is_same = meta is not None and meta.uid == action.uid and is_controlled_by(meta, action.owner_uid)
        if meta is None or not is_same or meta.deletion_timestamp is not None:
            return Missing(action)
        if action.finalizer and action.finalizer not in (meta.finalizers or ()):
            return Rejected(action, Conflict(f"{action.key} has no finalizer {action.finalizer} any more", code=409))
        if obstacle := judge.reason(action, found):
            return Rejected(action, Obstructed(f"{action.key} is not deleted now: {obstacle}", code=409))
        version = meta.resource_version
    raise AssertionError("the last attempt returns or raises")


async def member_error(client: ObjectClient, action: Delete | Restart, found: Found, judge: Judge) -> ApiError | None:
    """Return why the VM, which a user may just have detached, must not be touched, or the error of a read, or None."""
    member = action.member
    if member is None:
        return None
    try:
        answer = await client.get(member.resource, member.key)
        meta = read_meta(answer)
    except NotFound:
        return Obstructed(f"{member.key} was deleted", code=409)
    except ApiError as error:
        return error
    if meta.uid != member.uid or not is_controlled_by(meta, member.owner_uid):
        return Obstructed(f"{member.key} has left its pool", code=409)
    if meta.deletion_timestamp is not None:
        return Obstructed(f"{member.key} is being deleted", code=409)
    if obstacle := judge.reason(action, {**found, member.resource: answer}):
        return Obstructed(f"{member.key} is not restarted now: {obstacle}", code=409)
    return None


async def disk_error(client: ObjectClient, action: Action) -> ApiError | None:
    """Return an error if a disk of the VM is being deleted. A claim that a running VM uses stays until the VM stops."""
    for resource, key in action.disks if isinstance(action, Delete | Patch | Restart | ThreeWayMerge) else ():
        try:
            disk = read_meta(await client.get(resource, key))
        except NotFound:
            continue
        except ApiError as error:
            return error
        if disk.deletion_timestamp is not None:
            name = action.key.name
            text = f"its disk {key.name} is being deleted, and goes when {name} stops"
            return Invalid(f"{name} goes on: {text}; copy the data, and stop {name} yourself", code=422)
    return None


async def judged_error(client: ObjectClient, action: Patch | ThreeWayMerge | Pause, judge: Judge) -> ApiError | None:
    """Return the obstacle that the judge finds to a `judged` action in the objects on the server, or a read error."""
    if not action.judged:
        return None
    try:
        obstacle = judge.reason(action, await _read(client, action.key, judge.resources))
    except ApiError as error:
        return error
    done = "paused" if isinstance(action, Pause) else "patched"
    return Obstructed(f"{action.key} is not {done} now: {obstacle}", code=409) if obstacle else None


async def _neighbour_error(client: ObjectClient, action: Delete, judge: Judge) -> ApiError | None:
    """Return the judge's obstacle in the other objects of this name, which no precondition covers, or an error. The
    object itself may have a mark that takes the obstacle away.
    """
    try:
        found = await _read(client, action.key, [each for each in judge.resources if each is not action.resource])
        obstacle = judge.reason(action, found) if found else ""
        if obstacle:
            obstacle = judge.reason(action, {**found, **await _read(client, action.key, [action.resource])})
    except ApiError as error:
        return error
    return Obstructed(f"{action.key} is not deleted now: {obstacle}", code=409) if obstacle else None


async def _read(client: ObjectClient, key: ObjectKey, resources: Iterable[AnyResource]) -> Found:
    found = {}
    for resource in resources:
        try:
            found[resource] = await client.get(resource, key)
        except NotFound:
            continue
    return found


async def successor_error(client: ObjectClient, action: Delete) -> ApiError | None:
    """Return the error with which the server would refuse the successor, or that of the question, or None."""
    try:
        answer = await client.create(action.resource, action.key.namespace, action.successor, dry_run=True)
    except AlreadyExists:
        return None
    except ApiError as error:
        if isinstance(error, Forbidden) and is_freed_by_delete(str(error)):
            return None
        return error
    return error_of_labels(action, answer)


def is_full_quota(message: str) -> bool:
    return _FULL in message


def is_freed_by_delete(message: str) -> bool:
    """Return True if only a full quota, which counts both objects in the dry run, refuses the successor."""
    match = _QUOTA.search(message)
    if match is None:
        return False
    requested, used, limited = map(_amounts, match.groups())
    return all(0 <= _number(used.get(name)) <= _number(limited.get(name)) for name in requested)


def _amounts(text: str) -> dict[str, str]:
    """Return the amounts in a list such as `count/pods=1,secrets=2`, by name."""
    pairs = (item.partition("=") for item in text.split(",") if item)
    return {name: amount for name, _, amount in pairs}


def _number(amount: str | None) -> int:
    """Return the value of a count, or -1 for a quantity with a unit or a missing amount."""
    return int(amount) if amount is not None and amount.isascii() and amount.isdigit() else -1
