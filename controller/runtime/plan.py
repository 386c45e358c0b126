"""Plans and outcomes. The rules return a plan, the executor carries the plan out and returns outcomes.

A plan is a value. It lists the writes, their order and their reasons, or the reason why there are no writes. It
contains no function, no task and no clock. So the same snapshot gives the same plan, and a plan can be printed,
compared and counted.

Every write can be sent twice without harm: a create has a fixed name, a delete has the UID of its object, and a patch
has the expected state of its object. So a write can be repeated after its answer was lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, TypeAlias

from msgspec import Struct

from informers.errors import ApiError
from informers.meta import ObjectKey
from informers.objects import PatchType
from informers.resource import Resource

AnyResource: TypeAlias = Resource[Any]


class Cause(StrEnum):
    """The purpose of a delete, for the metrics. The text for readers is in `why`."""

    UNSPECIFIED = ""
    HEALING = "healing"
    """The VM is deleted because it is failing (P15)."""


class Create(Struct, frozen=True, kw_only=True):
    """Create the object `key` from its complete, encoded `body`. Its controller is the owner with the UID `owner_uid`.

    The new object finds its disks by name. `reusable_disks` are the disks with these names that an earlier object of
    the same name may have left. The create is postponed while the earlier object still owns one of them, because the
    garbage collector will delete that disk.
    """

    resource: AnyResource
    key: ObjectKey
    body: bytes
    owner_uid: str
    why: str
    reusable_disks: tuple[tuple[AnyResource, ObjectKey], ...] = ()


class Delete(Struct, frozen=True, kw_only=True):
    """Delete the object `key` if its UID is still `uid`. If `version` is given, the resourceVersion must match too."""

    resource: AnyResource
    key: ObjectKey
    uid: str
    why: str
    foreground: bool = False
    version: str = ""
    cause: Cause = Cause.UNSPECIFIED


class Patch(Struct, frozen=True, kw_only=True):
    """Patch the object `key`. The body contains its own preconditions (uid, resourceVersion, or JSON patch tests).

    `after_owner` is the UID of an owner. The patch is skipped if a `RemoveOwnerReference` of that owner failed earlier
    in the same plan. This keeps the steps for one VM together, and a failure of one VM does not block the others (P10).

    `is_note` marks a patch that only stores data on the owner for later passes. A dry run does not report such a patch.
    """

    resource: AnyResource
    key: ObjectKey
    body: bytes
    type: PatchType
    why: str
    after_owner: str = ""
    is_note: bool = False


class RemoveOwnerReference(Struct, frozen=True, kw_only=True):
    """Remove the ownerReference with the UID `owner_uid` from the object `key`, so that the object outlives the owner
    (P10).

    Nothing else is changed. If the object or the reference does not exist, nothing is left to do. The same is true if
    the cluster does not serve the resource.
    """

    resource: AnyResource
    key: ObjectKey
    owner_uid: str
    why: str


class ThreeWayMerge(Struct, frozen=True, kw_only=True):
    """Apply a template change to the object `key` (P12). `old` and `new` are the object as the old and the new template
    describe it. Only the differences between `old` and `new` are changed in the object. The executor reads the whole
    object from the server first, because no cache contains all of its fields.
    """

    resource: AnyResource
    key: ObjectKey
    uid: str
    old: bytes
    new: bytes
    why: str


class Confirm(Struct, frozen=True, kw_only=True):
    """Read the object `key` from the server, not from the cache. The plan continues only if the UID still is `uid` and
    the object is not being deleted (R2).
    """

    resource: AnyResource
    key: ObjectKey
    uid: str
    why: str


Action: TypeAlias = Create | Delete | Patch | Confirm | RemoveOwnerReference | ThreeWayMerge


def label_of(kind: type[object]) -> str:
    """The name of a type of action or outcome in logs and metrics: `three_way_merge`, `already_there`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


class Stage(Struct, frozen=True):
    """Actions that may run in parallel. The next stage starts only if all actions of this stage succeeded.

    With `essential=False` the next stage starts even if actions of this stage failed.
    """

    actions: tuple[Action, ...]
    essential: bool = True


class Notice(Struct, frozen=True, kw_only=True):
    """A message that the controller reports in an Event of the owner, although no single write causes it.

    `once` identifies the occasion: the same notice is reported once for each occasion. If `once` is empty, every pass
    reports the notice.
    """

    reason: str
    message: str
    warning: bool = True
    once: str = ""


class Plan(Struct, frozen=True, kw_only=True):
    """The writes of one pass. `held` is a short reason why the pass does nothing, or not everything that is needed."""

    stages: tuple[Stage, ...] = ()
    notices: tuple[Notice, ...] = ()
    held: str = ""
    requeue_after_s: float | None = None

    @property
    def actions(self) -> tuple[Action, ...]:
        return tuple(action for stage in self.stages for action in stage.actions)


def join(parts: Iterable[Plan]) -> Plan:
    """One plan that has the stages and notices of all parts, in order."""
    parts = tuple(parts)
    requeues = [part.requeue_after_s for part in parts if part.requeue_after_s is not None]
    return Plan(
        stages=tuple(stage for part in parts for stage in part.stages),
        notices=tuple(notice for part in parts for notice in part.notices),
        held="; ".join(part.held for part in parts if part.held),
        requeue_after_s=min(requeues, default=None),
    )


class Cleanup(Struct, frozen=True):
    """A plan that removes our finalizers from the objects of a kind.

    `left` are the owners that the plan does not change, because they are better left to the controller.
    """

    plan: Plan
    left: tuple[ObjectKey, ...] = ()


class Done(Struct, frozen=True):
    """The server confirmed the action. `version` is the resourceVersion after the write; "" if the answer has none."""

    action: Action
    version: str = ""


class AlreadyThere(Struct, frozen=True):
    """An earlier attempt of this create succeeded: the object exists, with the same name and the same owner."""

    action: Create
    version: str = ""


class Missing(Struct, frozen=True):
    """The object of the action does not exist any more. For a delete this is a success."""

    action: Delete | Patch | RemoveOwnerReference | ThreeWayMerge


class Rejected(Struct, frozen=True):
    """The server rejected the action, or a precondition of the plan no longer holds. `message` is for readers."""

    action: Action
    error: ApiError

    @property
    def message(self) -> str:
        return str(self.error)


class Unknown(Struct, frozen=True):
    """The answer was lost: the write may have happened. The key stays unsettled until the result is known (R9)."""

    action: Action
    error: ApiError

    @property
    def message(self) -> str:
        return str(self.error)


class Postponed(Struct, frozen=True):
    """The create was not tried, because a disk that it would reuse will be deleted. The key is retried soon."""

    action: Create


class Skipped(Struct, frozen=True):
    """The action was not tried, because an earlier action failed or the process is stopping."""

    action: Action


Outcome: TypeAlias = Done | AlreadyThere | Missing | Rejected | Unknown | Postponed | Skipped
