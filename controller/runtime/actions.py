"""Plans and outcomes. The rules of a kind return a plan. The executor carries out the plan and returns outcomes.

A plan lists the writes of one reconciliation, their order and their reasons. If a plan leaves out writes, it has waits.
A plan is a plain value: it contains no function, no task and no clock. So the same snapshot gives the same plan.

Every write can be repeated after a lost answer: a create has a fixed name, a delete the UID of the object, and a patch
its expected state.
"""

import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import cache
from typing import Any, TypeAlias

from msgspec import Struct

from controller.runtime.waits import Wait, Why
from informers.errors import ApiError
from informers.meta import ObjectKey, ObjectMeta
from informers.objects import PatchType
from informers.resource import Resource

AnyResource: TypeAlias = Resource[Any]


class Cause(StrEnum):
    """What a delete is for: a label of the metrics, and the cause in the mark of a drain (P26)."""

    UNSPECIFIED = ""
    HEALING = "healing"
    """The VM is deleted because it is failing (P15)."""

    FINISHED = "finished"
    """The guest of the VM has ended, and the pool wants a new VM (P25), or its claim has ended (P33)."""

    PRUNING = "pruning"
    """An unused revision or a live migration that has ended is deleted (P11, R17, P13)."""

    UPDATE = "update"
    """The VM or VMI is deleted because its template is outdated (P13, R14)."""


Disks: TypeAlias = tuple[tuple[AnyResource, ObjectKey], ...]


class _Action(Struct, frozen=True, kw_only=True):
    """What each action has: the object `key`, and why the plan has the action."""

    resource: AnyResource
    key: ObjectKey
    why: str


class _OfUID(_Action, frozen=True, kw_only=True):
    """An action on the object with the UID `uid`, and on no later one of the same name."""

    uid: str


class _Call(_OfUID, frozen=True, kw_only=True):
    """An action that is a PUT of the subresource `subresource` of `requests`."""

    requests: AnyResource
    subresource: str


class Create(_Action, frozen=True, kw_only=True):
    """Creates the object `key` from the complete, encoded `body`. Its controller has the UID `owner_uid`.

    It waits until no disk of `reusable_disks` belongs to another object or is being deleted. One without an owner needs
    the label `KEPT_FOR`, or "", in `usable`; None allows all. A dry run does not report one that `is_note`, for later
    reconciliations. `note` is an annotation of the body that is remembered, because a policy may take it off.
    """

    body: bytes
    owner_uid: str
    is_note: bool = False
    reusable_disks: Disks = ()
    usable: tuple[str, ...] | None = ("",)
    note: str = ""


class Member(Struct, frozen=True, kw_only=True):
    """A VM that must belong to the pool `owner_uid` for a restart, and, if `must_ask`, ask for it in its status."""

    resource: AnyResource
    key: ObjectKey
    uid: str
    owner_uid: str
    must_ask: bool = False


class Delete(_OfUID, frozen=True, kw_only=True):
    """Deletes the object. With `foreground`, the dependents that block the deletion go first.

    If the object has no longer its `version`, the action fails. With an `owner_uid`, the object is read again instead:
    it must still have this controller, and the `finalizer` if that is not "". The action also fails if `member` has
    left its pool, or if one of `disks` is being deleted, which exists until its VM stops. If there is an encoded
    `successor`, the server must accept it in its place now, with the labels `kept` (P20).
    """

    foreground: bool = False
    version: str = ""
    owner_uid: str = ""
    finalizer: str = ""
    cause: Cause = Cause.UNSPECIFIED
    member: Member | None = None
    successor: bytes = b""
    kept: tuple[str, ...] = ()
    disks: Disks = ()


class Restart(_Call, frozen=True, kw_only=True):
    """Requests a restart of the running `instance` with the same key, whose UID is `instance_uid`.

    If it was replaced, is being deleted or has left the object, no restart is requested, so the action can be repeated.
    `member` and `disks` are as in `Delete`.
    """

    instance: AnyResource
    instance_uid: str
    member: Member | None = None
    disks: Disks = ()


class Patch(_Action, frozen=True, kw_only=True):
    """Patches the object `key`. `body` contains the preconditions: a UID, a resourceVersion or JSON patch tests.

    It is skipped if an earlier stage failed to remove the ownerReference with the UID `after_owner` (P10). If `judged`,
    the judge of the kind must find no obstacle. If it prepares the delete `before`, the server must accept the
    successor (P20). `is_note` is as in `Create`, and `disks` as in `Delete`. If the object with the `uid` is missing,
    the cache is awaited. A patch that removes the `finalizer` needs the `uid`: the answer has the old resourceVersion
    if the object is gone after that.
    """

    body: bytes
    type: PatchType
    after_owner: str = ""
    is_note: bool = False
    judged: bool = False
    before: Delete | None = None
    disks: Disks = ()
    uid: str = ""
    finalizer: str = ""


class RemoveOwnerReference(_Action, frozen=True, kw_only=True):
    """Keeps the object `key`, if it exists, when its owner goes (P10). `kept_for` is its label `KEPT_FOR`, or ""."""

    owner_uid: str
    kept_for: str = ""


class ExpandClaim(_Action, frozen=True, kw_only=True):
    """Gives the PersistentVolumeClaim `key` the `size`, if it is smaller (P21).

    `old_size` is that of the old template: CDI makes a claim with a file system a few percent larger, and it keeps this
    share. The VM `owner` uses the claim. The action fails if the claim, or the DataVolume `source` that owns it,
    belongs to another object, or has no owner and is not `usable` (see `Create`), or if only `source` exists. If
    neither exists, it succeeds.
    """

    size: str
    old_size: str
    owner: ObjectKey
    owner_uid: str
    source: AnyResource
    usable: tuple[str, ...] | None = ("",)


class ThreeWayMerge(_OfUID, frozen=True, kw_only=True):
    """Applies the difference between `old` and `new` to the object `key` on the server: no cache has all fields (P12).

    The controller must have the UID `owner_uid`, if not "". It is skipped if a disk could not be expanded before, and
    fails if one of `reusable_disks` is not free (see `Create`). With `is_exact`, the changed values must be those of
    `old`, so that another action can take the change back. `judged` is as in `Patch`, and `disks` as in `Delete`.
    """

    old: bytes
    new: bytes
    owner_uid: str = ""
    is_exact: bool = False
    judged: bool = False
    reusable_disks: Disks = ()
    disks: Disks = ()
    usable: tuple[str, ...] | None = ("",)


class Pause(_Call, frozen=True, kw_only=True):
    """Pauses or unpauses the VMI `key`, if needed. If `judged`, the judge of the kind must find no obstacle."""

    judged: bool = False


class Confirm(_OfUID, frozen=True, kw_only=True):
    """An action that reads the object from the server. It succeeds only if the object has this UID and stays (R2)."""


class ConfirmFree(_Action, frozen=True, kw_only=True):
    """Succeeds if no object with these labels, in the namespace of the owner `key`, is `taken`."""

    selector: str
    taken: Callable[[ObjectMeta], bool]


Check: TypeAlias = Confirm | ConfirmFree
"""The actions that write nothing."""
Action: TypeAlias = (
    Create | Delete | Patch | Check | RemoveOwnerReference | ExpandClaim | ThreeWayMerge | Restart | Pause
)


@cache
def label_of(kind: type[object]) -> str:
    """Return the name of an action type or outcome type in logs and metrics, for example `three_way_merge`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


class Stage(Struct, frozen=True):
    """Actions that may run in parallel. If `essential`, the next stage starts only if all of them succeeded."""

    actions: tuple[Action, ...]
    essential: bool = True


def stage_of(actions: Iterable[Action], *, essential: bool = False) -> tuple[Stage, ...]:
    """Return a stage with these actions, or nothing without an action."""
    found = tuple(actions)
    return (Stage(found, essential),) if found else ()


class Notice(Struct, frozen=True, kw_only=True):
    """An Event of the set or pool, once for each reason and `once`, or in each reconciliation if `once` is "".

    If it tells of the patch or the pause `after`, it is reported only if this action succeeded.
    """

    reason: str
    message: str
    warning: bool = True
    once: str = ""
    after: Patch | Pause | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """What one reconciliation writes and tells, what waits, and the seconds until the next, or None."""

    stages: tuple[Stage, ...] = ()
    notices: tuple[Notice, ...] = ()
    waits: tuple[Wait, ...] = ()
    requeue_after_s: float | None = None

    @property
    def held(self) -> str:
        return "; ".join(each.text for each in self.waits)

    @property
    def actions(self) -> tuple[Action, ...]:
        return tuple(action for stage in self.stages for action in stage.actions)


def join(parts: Iterable[Plan]) -> Plan:
    """Join the parts into one plan. It has all stages and notices in order, and the shortest requeue delay."""
    parts = tuple(parts)
    requeues = [part.requeue_after_s for part in parts if part.requeue_after_s is not None]
    return Plan(
        stages=tuple(stage for part in parts for stage in part.stages),
        notices=tuple(notice for part in parts for notice in part.notices),
        waits=tuple(wait for part in parts for wait in part.waits),
        requeue_after_s=min(requeues, default=None),
    )


def waiting(text: str, why: Why = Why.TIME, **fields: Any) -> Plan:
    """Return a plan that only waits. Without a text, it is empty. `fields` are those of the wait."""
    return Plan(waits=(Wait(text=text, why=why, **fields),)) if text else Plan()


class Done(Struct, frozen=True):
    """The server confirmed the action. `version` is the resourceVersion after it, and `uid` that of a new object."""

    action: Action
    version: str = ""
    uid: str = ""


class AlreadyThere(Struct, frozen=True):
    """The outcome of a create action if an earlier attempt has already created the object for the same owner."""

    action: Create
    version: str = ""


class Missing(Struct, frozen=True):
    """The outcome of an action whose object does not exist any more, or has left its owner. This is no failure."""

    action: Delete | Patch | RemoveOwnerReference | ExpandClaim | ThreeWayMerge | Restart | Pause


class _Failure(Struct, frozen=True):
    """`wait_s` are the seconds until the next try."""

    action: Action
    error: ApiError
    wait_s: float = 0.0

    @property
    def message(self) -> str:
        return str(self.error)


class Rejected(_Failure, frozen=True):
    """The server rejected the action, or a precondition was false. If `is_repeated`, it was not tried again yet, and
    the error is that of the last try (see `execute.refusals`).
    """

    is_repeated: bool = False


class SuccessorRefused(Rejected, frozen=True):
    """The outcome of a delete action that was not tried, because the server would refuse the successor (P20)."""

    @property
    def message(self) -> str:
        return f"the successor of {self.action.key.name} would be refused: {self.error}"


class Unknown(_Failure, frozen=True):
    """The write may have happened. Until this is known, no other write is sent for the same set or pool (R9)."""


class Postponed(Struct, frozen=True):
    """The create was not tried, because of a disk (`reason`). The delay grows with `waited_s`, since the first."""

    action: Create
    reason: str
    waited_s: float = 0.0

    @property
    def message(self) -> str:
        return f"{self.action.key} waits: {self.reason}"


class Unserved(Struct, frozen=True):
    """The cluster does not serve the subresource now. The next request is after `result.UNSERVED_S`."""

    action: Restart | Pause
    error: ApiError

    @property
    def message(self) -> str:
        return f"{self.action.requests.name}/{self.action.subresource} is not served: {self.error}"


class Skipped(Struct, frozen=True):
    """The outcome of an action that was not tried, because an earlier action failed."""

    action: Action


Outcome: TypeAlias = Done | AlreadyThere | Missing | Rejected | Unknown | Postponed | Unserved | Skipped
