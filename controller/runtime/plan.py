"""The vocabulary between deciding and doing: a plan goes from the core to the executor, outcomes come back.

A plan is a value. It says what to write, in which order, and why; or why nothing is written. Nothing in it is a
function, a task or a clock, so the same snapshot gives the same plan, and a plan can be printed, compared and counted.

Every write can be sent twice without harm: a create has its name, a delete names the UID it means, a patch says what
it expects to find. That is what makes a lost answer harmless.
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
    """What a delete is for, as far as somebody counts it apart. `why` is for people."""

    UNSPECIFIED = ""
    HEALING = "healing"
    """The VM is deleted because it fails (P15)."""


class Create(Struct, frozen=True, kw_only=True):
    """Create `key` from a whole, encoded object, whose controller is `owner_uid`.

    `reusable_disks` are the disks that an earlier holder of the name may have left, and that the new object would find
    by name. The create waits while one of them still belongs to the earlier holder: the garbage collector is about to
    delete it.
    """

    resource: AnyResource
    key: ObjectKey
    body: bytes
    owner_uid: str
    why: str
    reusable_disks: tuple[tuple[AnyResource, ObjectKey], ...] = ()


class Delete(Struct, frozen=True, kw_only=True):
    """Delete `key` if it still is the object with this UID and, where `version` is given, has not changed since."""

    resource: AnyResource
    key: ObjectKey
    uid: str
    why: str
    foreground: bool = False
    version: str = ""
    cause: Cause = Cause.UNSPECIFIED


class Patch(Struct, frozen=True, kw_only=True):
    """Patch `key`. The body itself carries what must still hold (uid, resourceVersion, or JSON patch tests).

    `after_owner` is the UID of an owner: the patch is not tried if a `RemoveOwnerReference` of that owner failed before
    it in the same plan. It ties one VM's steps together, without one VM's failure holding back the others (P10).

    `is_note` marks a patch that only notes something on the owner, for later passes. A dry run does not report it.
    """

    resource: AnyResource
    key: ObjectKey
    body: bytes
    type: PatchType
    why: str
    after_owner: str = ""
    is_note: bool = False


class RemoveOwnerReference(Struct, frozen=True, kw_only=True):
    """Take the ownerReference with this UID off `key`, and nothing else, so that it outlives that owner (P10).

    What is not there, or not owned by it, is as it should be. So is a resource that the cluster does not serve.
    """

    resource: AnyResource
    key: ObjectKey
    owner_uid: str
    why: str


class ThreeWayMerge(Struct, frozen=True, kw_only=True):
    """Bring `key` from the template it was made from to another (P12): `old` and `new` are that object as each template
    would have it, and only what differs between them changes. The object is read whole when that is done, since no
    cache holds all of it.
    """

    resource: AnyResource
    key: ObjectKey
    uid: str
    old: bytes
    new: bytes
    why: str


class Confirm(Struct, frozen=True, kw_only=True):
    """Read `key` from the server, past the cache: go on only while it has this UID and is not being deleted (R2)."""

    resource: AnyResource
    key: ObjectKey
    uid: str
    why: str


Action: TypeAlias = Create | Delete | Patch | Confirm | RemoveOwnerReference | ThreeWayMerge


def label_of(kind: type[object]) -> str:
    """The name of a type of action or outcome in logs and metrics: `three_way_merge`, `already_there`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


class Stage(Struct, frozen=True):
    """Actions that may run together. The next stage starts only when all of this one succeeded.

    `essential=False` marks a stage whose failures do not hold back the next one.
    """

    actions: tuple[Action, ...]
    essential: bool = True


class Notice(Struct, frozen=True, kw_only=True):
    """Something to tell the owner's reader in an Event that no single write causes.

    `once` names the occasion: the same notice on the same occasion is told once. Empty: each time.
    """

    reason: str
    message: str
    warning: bool = True
    once: str = ""


class Plan(Struct, frozen=True, kw_only=True):
    """What one pass does. `held` says in a phrase why it does nothing, or not all that is wanted."""

    stages: tuple[Stage, ...] = ()
    notices: tuple[Notice, ...] = ()
    held: str = ""
    requeue_after_s: float | None = None

    @property
    def actions(self) -> tuple[Action, ...]:
        return tuple(action for stage in self.stages for action in stage.actions)


def join(parts: Iterable[Plan]) -> Plan:
    """The parts one after the other, as one plan."""
    parts = tuple(parts)
    requeues = [part.requeue_after_s for part in parts if part.requeue_after_s is not None]
    return Plan(
        stages=tuple(stage for part in parts for stage in part.stages),
        notices=tuple(notice for part in parts for notice in part.notices),
        held="; ".join(part.held for part in parts if part.held),
        requeue_after_s=min(requeues, default=None),
    )


class Cleanup(Struct, frozen=True):
    """What removes our finalizers from the objects of a kind, and the owners that are better left to the controller."""

    plan: Plan
    left: tuple[ObjectKey, ...] = ()


class Done(Struct, frozen=True):
    """The server did it. `version` is the written object's resourceVersion, "" where the answer has none."""

    action: Action
    version: str = ""


class AlreadyThere(Struct, frozen=True):
    """A create found its own earlier self: same name, same owner."""

    action: Create
    version: str = ""


class Missing(Struct, frozen=True):
    """What was to be deleted or patched is gone, which is what a delete wants."""

    action: Delete | Patch | RemoveOwnerReference | ThreeWayMerge


class Rejected(Struct, frozen=True):
    """The server answered no, or a condition of the plan no longer held. The message is for people."""

    action: Action
    error: ApiError

    @property
    def message(self) -> str:
        return str(self.error)


class Unknown(Struct, frozen=True):
    """The answer was lost: the write may have happened. The key stays unsettled until that is known (R9)."""

    action: Action
    error: ApiError

    @property
    def message(self) -> str:
        return str(self.error)


class Postponed(Struct, frozen=True):
    """Not tried, since what it waits for is surely under way: look again in a moment."""

    action: Create


class Skipped(Struct, frozen=True):
    """Not tried: an earlier batch or stage failed, or the process is stopping."""

    action: Action


Outcome: TypeAlias = Done | AlreadyThere | Missing | Rejected | Unknown | Postponed | Skipped
