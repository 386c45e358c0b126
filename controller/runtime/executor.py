"""Carries out plans. No other code writes the children of an owner. The executor makes no decisions.

Stages run in order. A failed essential stage ends the plan. The creates of a stage start slowly (R4): 1, 2, 4, 8 ...
creates run in parallel. After the first failed create, no further create is sent, so a full quota costs one request and
not 250. All other actions of a stage are tried even if some of them fail, as long as the server answers. The client
limits the number of parallel requests.

A write never raises: a failure is an outcome. A write whose answer is lost has the outcome `Unknown`. `resolve` asks
the server about such a write before the key's next plan is made.

Cancellation aborts the running requests and sends no more. The executor is cancelled after the loss of the lease, or at
the end of the shutdown time. The next leader chooses the same names, and finds the objects that already exist.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, assert_never

import msgspec

from controller.apimachinery.owner_references import release_patch
from controller.apimachinery.three_way_merge import PLAIN
from controller.runtime.expectations import Expectations, Write
from controller.runtime.plan import (
    Action,
    AlreadyThere,
    Confirm,
    Create,
    Delete,
    Done,
    Missing,
    Outcome,
    Patch,
    Plan,
    Postponed,
    Rejected,
    RemoveOwnerReference,
    Skipped,
    Stage,
    ThreeWayMerge,
    Unknown,
    label_of,
)
from informers.errors import AlreadyExists, ApiError, Conflict, NotFound, ServerError, TransportError
from informers.meta import ObjectKey, ObjectMeta, controller_of
from informers.objects import ObjectClient, PatchType, read_meta

PARALLEL = 50
"""The most tasks for one stage. More tasks would only wait for the client's own limit on parallel requests."""

ATTEMPTS = 4
"""How often a change is computed from a fresh read, if another writer changes the object after each read."""

_UID_PRECONDITION = re.compile(r"\bUID in (the )?precondition\b", re.IGNORECASE)

Merge: TypeAlias = Callable[[bytes, bytes, bytes], bytes | None]
"""A function of three documents: the current object, and the object as the old and the new template describe it.
It returns the merge patch, or None if there is nothing to change.
"""

Numbered: TypeAlias = Sequence[tuple[int, Action]]
"""Actions with their indexes in their stage."""


class ActionInstruments(Protocol):
    def acted(self, controller: str, *, action: str, outcome: str) -> None: ...


class Executor:
    """Carries out the plans for one kind of owner. `controller` is the controller's name in the metrics."""

    def __init__(
        self,
        client: ObjectClient,
        expectations: Expectations,
        *,
        controller: str,
        instruments: ActionInstruments,
        report: Callable[[ObjectKey, Sequence[Outcome]], None] = lambda _key, _outcomes: None,
        merge: Merge = PLAIN.merge,
    ) -> None:
        """`report` is called with the outcomes of each plan. `merge` computes the patch of a `ThreeWayMerge`."""
        self._client = client
        self._expectations = expectations
        self._controller = controller
        self._instruments = instruments
        self._report = report
        self._merge = merge

    async def carry_out(self, key: ObjectKey, owner_uid: str, plan: Plan) -> tuple[Outcome, ...]:
        """Carry out the plan in order and return one outcome for each action. The outcomes update the expectations."""
        outcomes: list[Outcome] = []
        proceed = True
        for stage in plan.stages:
            if not proceed:
                outcomes += [Skipped(action) for action in stage.actions]
                continue
            results = await self._run_stage(stage, blocked=_blocked_owners(outcomes))
            self._expectations.record(key, owner_uid, results)
            outcomes += results
            proceed = not stage.essential or not any(failed(result) for result in results)
        for outcome in outcomes:
            self._instruments.acted(
                self._controller, action=label_of(type(outcome.action)), outcome=label_of(type(outcome))
            )
        self._report(key, outcomes)
        return tuple(outcomes)

    async def resolve(self, key: ObjectKey, owner_uid: str) -> ApiError | None:
        """Ask the server about each write whose answer was lost. Returns the error if the server cannot answer."""
        for write in self._expectations.unresolved(key, owner_uid):
            try:
                outcome = await self._look_up(write)
            except ApiError as error:
                return error
            self._expectations.resolve(key, write, outcome)
        return None

    async def _look_up(self, write: Write) -> Outcome | None:
        """The outcome of an earlier write, from the state of the server; None if the write did not happen."""
        try:
            found = read_meta(await self._client.get(write.resource, write.key))
        except NotFound:
            return None if isinstance(write, Create) else Missing(write)
        match write:
            case Create(owner_uid=owner_uid):
                return AlreadyThere(write, found.resource_version) if _is_owned_by(found, owner_uid) else None
            case Delete(uid=uid):
                return None if found.uid == uid and found.deletion_timestamp is None else Missing(write)
            case Patch() | ThreeWayMerge():
                # Whether or not the patch happened, the cache must show at least this version before the next plan.
                return Done(write, found.resource_version)
            case _:
                assert_never(write)

    async def _run_stage(self, stage: Stage, *, blocked: frozenset[str]) -> list[Outcome]:
        """Run the creates after all other actions, and skip the actions that wait for a blocked owner. The outcomes are
        in the order of the actions.
        """
        numbered = [(number, action) for number, action in enumerate(stage.actions) if not _waits(action, blocked)]
        creates = [(number, action) for number, action in numbered if isinstance(action, Create)]
        others = [(number, action) for number, action in numbered if not isinstance(action, Create)]
        outcomes = await self._run_together(others) | await self._run_slow_start(creates)
        return [outcomes.get(number, Skipped(action)) for number, action in enumerate(stage.actions)]

    async def _run_together(self, actions: Numbered) -> dict[int, Outcome]:
        """Perform the actions, at most PARALLEL at once, and return their outcomes by index.

        After the first action that the server does not answer, no further action is started, because each of them would
        wait for its own timeout. An action that was not tried has no outcome.
        """
        outcomes: dict[int, Outcome] = {}
        todo = iter(actions)
        reachable = True

        async def lane() -> None:
            nonlocal reachable
            for number, action in todo:
                outcomes[number] = outcome = await self._perform(action)
                reachable = reachable and not _is_unanswered(outcome)
                if not reachable:
                    return

        async with asyncio.TaskGroup() as group:
            for _ in range(min(PARALLEL, len(actions))):
                group.create_task(lane(), name="executor-lane")
        return outcomes

    async def _run_slow_start(self, creates: Numbered) -> dict[int, Outcome]:
        """Perform the creates with a slow start, and return their outcomes by index.

        The first create runs alone. Each success allows one more parallel create, so the number of parallel creates
        doubles with each round trip: 1, 2, 4, 8 ... up to PARALLEL. After the first failure no create is started. The
        running creates finish. A create that was not tried has no outcome.
        """
        outcomes: dict[int, Outcome] = {}
        todo = iter(creates)
        lanes, succeeding = 0, True

        async def lane() -> None:
            nonlocal lanes, succeeding
            for number, create in todo:
                outcomes[number] = outcome = await self._perform(create)
                succeeding = succeeding and not failed(outcome)
                if not succeeding:
                    return
                if lanes < min(PARALLEL, len(creates) - len(outcomes)):
                    lanes += 1
                    group.create_task(lane(), name="executor-lane")

        async with asyncio.TaskGroup() as group:
            lanes += 1
            group.create_task(lane(), name="executor-lane")
        return outcomes

    async def _perform(self, action: Action) -> Outcome:
        try:
            match action:
                case Create():
                    return await self._create(action)
                case Delete():
                    propagation = "Foreground" if action.foreground else "Background"
                    answer = await self._client.delete(
                        action.resource,
                        action.key,
                        uid=action.uid,
                        propagation=propagation,
                        version=action.version,
                    )
                    return Done(action, read_meta(answer).resource_version)
                case Patch():
                    answer = await self._client.patch(
                        action.resource, action.key, action.body, content_type=action.type.value
                    )
                    return Done(action, read_meta(answer).resource_version)
                case RemoveOwnerReference() | ThreeWayMerge():
                    return await self._read_and_patch(action)
                case Confirm():
                    return await self._confirm(action)
                case _:
                    assert_never(action)
        except ApiError as error:
            return _outcome_of(action, error)

    async def _create(self, action: Create) -> Outcome:
        if await self._predecessor_owns_disks(action):
            return Postponed(action)
        try:
            answer = await self._client.create(action.resource, action.key.namespace, action.body)
        except AlreadyExists as error:
            return await self._resolve_name_conflict(action, error)
        return Done(action, read_meta(answer).resource_version)

    async def _predecessor_owns_disks(self, action: Create) -> bool:
        """True if an earlier object of the same name still owns a disk that the new object would reuse, or if such a
        disk is being deleted.
        """
        for resource, key in action.reusable_disks:
            try:
                disk = read_meta(await self._client.get(resource, key))
            except NotFound:
                continue
            owner = controller_of(disk)
            is_owned = owner is not None and (owner.kind, owner.name) == (action.resource.kind, action.key.name)
            if is_owned or disk.deletion_timestamp is not None:
                return True
        return False

    async def _resolve_name_conflict(self, action: Create, error: AlreadyExists) -> Outcome:
        """The outcome of a create whose name is taken. `AlreadyThere` if the existing object has the owner of this
        create: an earlier attempt succeeded and its answer was lost.

        This is true even if the existing object is being deleted: the cache must show the deletion before the next
        plan.
        """
        try:
            found = read_meta(await self._client.get(action.resource, action.key))
        except NotFound:
            return Rejected(action, error)
        if _is_owned_by(found, action.owner_uid):
            return AlreadyThere(action, found.resource_version)
        return Rejected(action, error)

    async def _confirm(self, action: Confirm) -> Outcome:
        found = read_meta(await self._client.get(action.resource, action.key))
        if found.uid != action.uid:
            return Rejected(action, Conflict(f"{action.key} was replaced by another object of the same name", code=409))
        if found.deletion_timestamp is not None:
            return Rejected(action, Conflict(f"{action.key} is being deleted", code=409))
        return Done(action)

    async def _read_and_patch(self, action: RemoveOwnerReference | ThreeWayMerge) -> Outcome:
        """Read the object and patch it. Repeat both if another writer changed the object between the two requests."""
        for _ in range(ATTEMPTS - 1):
            try:
                return await self._read_and_patch_once(action)
            except Conflict:
                continue
        return await self._read_and_patch_once(action)

    async def _read_and_patch_once(self, action: RemoveOwnerReference | ThreeWayMerge) -> Outcome:
        try:
            current = await self._client.get(action.resource, action.key)
            meta = read_meta(current)
        except NotFound:
            return Missing(action)
        except ApiError as error:
            # The read failed, so nothing was written. The outcome is not `Unknown`, even if the answer was lost.
            return Rejected(action, error)
        if isinstance(action, RemoveOwnerReference):
            patch = _owner_removal(action, meta)
        else:
            patch = _template_change(self._merge, action, meta, current)
        if not isinstance(patch, bytes):
            return patch
        answer = await self._client.patch(action.resource, action.key, patch, content_type=PatchType.MERGE.value)
        return Done(action, read_meta(answer).resource_version)


def _owner_removal(action: RemoveOwnerReference, meta: ObjectMeta) -> bytes | Outcome:
    """The patch that removes the ownerReference; the outcome if the object does not have the reference."""
    if all(reference.uid != action.owner_uid for reference in meta.owner_references or ()):
        return Done(action)
    return release_patch(meta, action.owner_uid)


def _template_change(merge: Merge, action: ThreeWayMerge, meta: ObjectMeta, current: bytes) -> bytes | Outcome:
    """The patch that applies the template change to the current object; the outcome if there is nothing to patch."""
    if meta.uid != action.uid or meta.deletion_timestamp is not None:
        return Missing(action)
    try:
        patch = merge(current, action.old, action.new)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Rejected(action, ApiError(f"{action.key} cannot be read: {error}"))
    return Done(action, meta.resource_version) if patch is None else patch


def failed(outcome: Outcome) -> bool:
    """True if the outcome is a failure, so that later stages of the plan must not run."""
    return isinstance(outcome, Rejected | Unknown | Skipped)


def _is_unanswered(outcome: Outcome) -> bool:
    return isinstance(outcome, Rejected | Unknown) and isinstance(outcome.error, TransportError)


def _outcome_of(action: Action, error: ApiError) -> Outcome:
    match action, error:
        case (Delete() | Patch() | RemoveOwnerReference() | ThreeWayMerge()) as write, NotFound():
            return Missing(write)
        case Delete() as delete, Conflict() as conflict if _is_uid_mismatch(conflict):
            return Missing(delete)
        case (Confirm(), _):
            return Rejected(action, error)
        case (_, TransportError(sent=True) | ServerError()):
            # With any 5xx status the write may have happened. The server answers 500 or 504 after a timeout of etcd. A
            # proxy answers 502 or 503 if it loses the connection to the server.
            return Unknown(action, error)
        case _:
            return Rejected(action, error)


def _blocked_owners(outcomes: Sequence[Outcome]) -> frozenset[str]:
    """The UIDs of the owners whose ownerReference could not be removed from an object. Patches that have one of these
    UIDs as `after_owner` must wait (P10).
    """
    return frozenset(
        outcome.action.owner_uid
        for outcome in outcomes
        if isinstance(outcome.action, RemoveOwnerReference) and failed(outcome)
    )


def _waits(action: Action, blocked: frozenset[str]) -> bool:
    return isinstance(action, Patch) and action.after_owner in blocked


def _is_uid_mismatch(error: Conflict) -> bool:
    """True if a delete failed because the object has another UID than the delete expects.

    The API server reports this only in the message, in one of two texts: "the UID in the precondition (...) does not
    match ..." or "Precondition failed: UID in precondition: ...".
    """
    return _UID_PRECONDITION.search(str(error)) is not None


def _is_owned_by(meta: ObjectMeta, uid: str) -> bool:
    owner = controller_of(meta)
    return owner is not None and owner.uid == uid
