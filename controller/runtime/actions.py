"""Plans and outcomes. The rules of a kind return a plan. The executor carries out the plan and returns outcomes.

A plan lists the writes of one reconciliation, their order and their reasons. If a plan leaves out writes, it has waits.
A plan is a plain value: it contains no function, no task and no clock. So the same snapshot gives the same plan.

Every write can be sent twice without harm. A create contains a fixed name. A delete contains the UID of the object. A
patch contains the expected state of the object. So a write whose answer was lost can be repeated.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from typing import Any, TypeAlias

from msgspec import Struct

from controller.runtime.waits import Wait, Why
from informers.errors import ApiError
from informers.meta import ObjectKey
from informers.objects import PatchType
from informers.resource import Resource

AnyResource: TypeAlias = Resource[Any]


class Cause(StrEnum):
    """The purpose of a delete request. It is a label of the metrics, and the cause in the mark of a drain (P26). The
    field `why` of the action explains the purpose to readers.
    """

    UNSPECIFIED = ""
    HEALING = "healing"
    """The VM is deleted because it is failing (P15)."""

    FINISHED = "finished"
    """The guest of the VM has ended, and the pool wants a new VM (P25)."""

    PRUNING = "pruning"
    """An unused revision or a live migration that has ended is deleted (P11, R17, P13)."""

    UPDATE = "update"
    """The VM is deleted because its template needs new disks (P13)."""


class Create(Struct, frozen=True, kw_only=True):
    """An action that creates the object `key`. `body` is the complete, encoded object.

    `owner_uid` is the UID in the controller ownerReference of the new object.

    `reusable_disks` are the names of the disks of the new object. An earlier object of the same name may have left
    disks with these names. So the action waits until no disk belongs to another object or is being deleted. A disk
    without an owner may be used if its label `KEPT_FOR`, or "", is one of `usable`. None allows all.

    `is_note` is true if the object only stores data for later reconciliations. A dry run does not report such a create.
    """

    resource: AnyResource
    key: ObjectKey
    body: bytes
    owner_uid: str
    why: str
    is_note: bool = False
    reusable_disks: tuple[tuple[AnyResource, ObjectKey], ...] = ()
    usable: tuple[str, ...] | None = ("",)


class Member(Struct, frozen=True, kw_only=True):
    """A VM that must still belong to the pool `owner_uid` while the pool restarts its VMI.

    If `must_ask` is true, the only reason for the restart is that KubeVirt asks for it in the status of the VM.
    """

    resource: AnyResource
    key: ObjectKey
    uid: str
    owner_uid: str
    must_ask: bool = False


class Delete(Struct, frozen=True, kw_only=True):
    """An action that deletes the object `key` if the object still has the UID `uid`.

    `version` is the resourceVersion from which the plan was made, or empty. If the object has another one on the
    server, the action fails if `owner_uid` is empty. Otherwise the object is read again, and is deleted only if its
    controller still has the UID `owner_uid`, and only if it has the `finalizer`, if this is not empty. If `foreground`
    is true, the garbage collector first deletes the dependents that block the deletion.

    If `member` is not None, the action fails if this VM has left its pool.

    If `successor` is not empty, it is the encoded object that takes the place of the deleted object. The object is
    deleted only if the server would accept the successor now (P20), with the labels whose names are in `kept`.
    """

    resource: AnyResource
    key: ObjectKey
    uid: str
    why: str
    foreground: bool = False
    version: str = ""
    owner_uid: str = ""
    finalizer: str = ""
    cause: Cause = Cause.UNSPECIFIED
    member: Member | None = None
    successor: bytes = b""
    kept: tuple[str, ...] = ()


class Patch(Struct, frozen=True, kw_only=True):
    """An action that patches the object `key`.

    `body` contains the preconditions of the patch: a uid, a resourceVersion or JSON patch tests.

    `after_owner` is the UID of an owner, or empty. If an earlier stage failed to remove an ownerReference with this
    UID, the patch is skipped (P10).

    `is_note` is true if the patch only stores data for later reconciliations. A dry run does not report such a patch.

    If `judged` is true, the judge of the kind must find no obstacle in the objects that the server has now. If `before`
    is not None, the patch prepares this delete, and is sent only if the server would accept its successor (P20).

    If the patch removes a finalizer, `finalizer` is this finalizer, and `uid` is the UID of the object. After the
    removal of its last finalizer, a deleted object is gone. The API server then answers with its old resourceVersion.
    """

    resource: AnyResource
    key: ObjectKey
    body: bytes
    type: PatchType
    why: str
    after_owner: str = ""
    is_note: bool = False
    judged: bool = False
    before: Delete | None = None
    uid: str = ""
    finalizer: str = ""


class RemoveOwnerReference(Struct, frozen=True, kw_only=True):
    """An action that removes the ownerReference with the UID `owner_uid` from the object `key`.

    Without the reference, the object is not deleted together with the owner (P10). It gets the label `KEPT_FOR` with
    the value `kept_for`, unless this is empty. The action succeeds without a write if the object or the reference does
    not exist, or if the cluster does not serve the resource.
    """

    resource: AnyResource
    key: ObjectKey
    owner_uid: str
    why: str
    kept_for: str = ""


class ExpandClaim(Struct, frozen=True, kw_only=True):
    """An action that gives the PersistentVolumeClaim `key` the size `size`, if the claim is smaller (P21).

    `old_size` is the size before the change of the template. CDI makes a claim with a file system a few percent larger
    than the template says. The expanded claim keeps this share.

    The VM with the key `owner` and the UID `owner_uid` uses the claim. The action fails if the claim, or the DataVolume
    `source` that owns it, belongs to another object, or has no owner and is not `usable` (see `Create`). It also fails
    if only `source` exists: the claim is not created yet. If neither exists, the action succeeds.
    """

    resource: AnyResource
    key: ObjectKey
    size: str
    old_size: str
    owner: ObjectKey
    owner_uid: str
    source: AnyResource
    why: str
    usable: tuple[str, ...] | None = ("",)


class ThreeWayMerge(Struct, frozen=True, kw_only=True):
    """An action that applies a template change to the object `key` (P12).

    Only the values that differ between the objects `old` and `new` change. The executor first reads the whole object
    from the server, because no cache contains all its fields. If `owner_uid` is not empty, the object changes only if
    its controller has this UID. If a disk of the object could not be expanded before, the action is skipped. It fails
    if one of `reusable_disks`, which the change adds, is not free (see `Create`).
    """

    resource: AnyResource
    key: ObjectKey
    uid: str
    old: bytes
    new: bytes
    why: str
    owner_uid: str = ""
    reusable_disks: tuple[tuple[AnyResource, ObjectKey], ...] = ()
    usable: tuple[str, ...] | None = ("",)


class Restart(Struct, frozen=True, kw_only=True):
    """An action that requests a restart of the object `key`.

    The request is a PUT of the subresource `subresource` of the resource `requests`. `instance` is the resource of the
    running instance, and `instance_uid` is its UID. The instance has the same key as the object. If it was replaced, is
    being deleted or has left the object, no restart is requested. So the action can be repeated after a lost answer.
    The action fails if the object has left its owner (see `member`).
    """

    resource: AnyResource
    key: ObjectKey
    uid: str
    requests: AnyResource
    subresource: str
    instance: AnyResource
    instance_uid: str
    why: str
    member: Member | None = None


class Confirm(Struct, frozen=True, kw_only=True):
    """An action that reads the object from the server. It succeeds only if the object has this UID and stays (R2)."""

    resource: AnyResource
    key: ObjectKey
    uid: str
    why: str


Action: TypeAlias = Create | Delete | Patch | Confirm | RemoveOwnerReference | ExpandClaim | ThreeWayMerge | Restart


@cache
def label_of(kind: type[object]) -> str:
    """Return the name of an action type or outcome type in logs and metrics, for example `three_way_merge`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


class Stage(Struct, frozen=True):
    """A part of a plan: actions that may run in parallel.

    If `essential` is true, the next stage starts only if all actions of this stage succeeded. If `essential` is false,
    the next stage starts even if actions of this stage failed.
    """

    actions: tuple[Action, ...]
    essential: bool = True


class Notice(Struct, frozen=True, kw_only=True):
    """A message that the controller reports in an Event of the set or pool.

    `once` identifies the cause of the notice. Notices with the same reason and the same `once` are reported only once.
    If `once` is empty, every reconciliation reports the notice. If `after` is not None, the notice tells of this patch,
    and is reported only if the patch succeeded.
    """

    reason: str
    message: str
    warning: bool = True
    once: str = ""
    after: Patch | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """The writes and notices of one reconciliation.

    `waits` say which needed writes the plan leaves out. `requeue_after_s` is the delay in seconds until the next
    reconciliation, or None if the plan requests no delay.
    """

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
    """The server confirmed the action. `version` is the resourceVersion after the write, or "" if it is unknown."""

    action: Action
    version: str = ""


class AlreadyThere(Struct, frozen=True):
    """The outcome of a create action if an earlier attempt has already created the object for the same owner."""

    action: Create
    version: str = ""


class Missing(Struct, frozen=True):
    """The outcome of an action whose object does not exist any more, or has left its owner. This is no failure."""

    action: Delete | Patch | RemoveOwnerReference | ExpandClaim | ThreeWayMerge | Restart


class Rejected(Struct, frozen=True):
    """The outcome of an action that the server rejected, or whose precondition was false.

    If the server refused the write, `wait_s` is the time, in seconds, until the next try (see `execute.refusals`). If
    `is_repeated` is true, the action was not tried, because this time is not over. The error is that of the last try.
    """

    action: Action
    error: ApiError
    wait_s: float = 0.0
    is_repeated: bool = False

    @property
    def message(self) -> str:
        return str(self.error)


class SuccessorRefused(Rejected, frozen=True):
    """The outcome of a delete action that was not tried, because the server would refuse the successor (P20)."""

    @property
    def message(self) -> str:
        return f"the successor of {self.action.key.name} would be refused: {self.error}"


class Unknown(Struct, frozen=True):
    """The outcome of a write that may have happened, because its answer was lost or was a 5xx error.

    Until the controller knows whether the write happened, it sends no other write for the same set or pool (R9).
    """

    action: Action
    error: ApiError
    wait_s: float = 0.0

    @property
    def message(self) -> str:
        return str(self.error)


class Postponed(Struct, frozen=True):
    """The outcome of a create action that was not tried, because a disk with a needed name is not free.

    `reason` names the disk. `waited_s` is the time, in seconds, since the create was first postponed by this process.
    The delay until the next try grows with this time (see `result.postponed_s`).
    """

    action: Create
    reason: str
    waited_s: float = 0.0

    @property
    def message(self) -> str:
        return f"{self.action.key} waits: {self.reason}"


class Unserved(Struct, frozen=True):
    """The cluster does not serve the subresource of a restart now. The next request is after `result.UNSERVED_S`."""

    action: Restart
    error: ApiError

    @property
    def message(self) -> str:
        return f"{self.action.requests.name}/{self.action.subresource} is not served: {self.error}"


class Skipped(Struct, frozen=True):
    """The outcome of an action that was not tried, because an earlier action failed."""

    action: Action


Outcome: TypeAlias = Done | AlreadyThere | Missing | Rejected | Unknown | Postponed | Unserved | Skipped
