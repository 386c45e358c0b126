"""Carries out plans: the only code that writes children. It decides nothing.

Stages run in order, a failed essential stage ends the plan. Within a stage creates start slowly (R4): 1, 2, 4, 8 ...
are under way at once, and when one fails, the rest is not tried, so a full quota costs one request and not 250.
Everything else of a stage is tried, whatever happens to its neighbours, for as long as the server answers at all. How
many requests are on the wire at once is the client's limit.

A write never raises: its failure is a value. A write whose answer is lost is `Unknown`, and `settle` asks the server
about it before anything more happens for that key.

Cancellation cuts off what is on the wire and sends nothing more: whoever cancels has lost the lease, or has run out
of time, and whoever comes next finds the same names taken.
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
"""Tasks for one stage: more would only queue up before the client's own limit on requests in flight."""

REWORKS = 4
"""How often a change is worked out on a fresh read, while somebody else keeps being faster."""

_UID_PRECONDITION = re.compile(r"\bUID in (the )?precondition\b", re.IGNORECASE)

Merge: TypeAlias = Callable[[bytes, bytes, bytes], bytes | None]
"""The object as it is, and as the old and the new template would have it: the merge patch, or None if none is due."""

Numbered: TypeAlias = Sequence[tuple[int, Action]]
"""Actions with their places in their stage."""


class ActionInstruments(Protocol):
    def acted(self, controller: str, *, action: str, outcome: str) -> None: ...


class Executor:
    """One for both kinds of owner. `controller` is the name that its metrics carry."""

    def __init__(
        self,
        client: ObjectClient,
        expectations: Expectations,
        *,
        controller: str,
        instruments: ActionInstruments,
        told: Callable[[ObjectKey, Sequence[Outcome]], None] = lambda _key, _outcomes: None,
        merge: Merge = PLAIN.merge,
    ) -> None:
        """`told` is called with the outcomes of each plan. `merge` is how a `ThreeWayMerge` of this kind is done."""
        self._client = client
        self._expectations = expectations
        self._controller = controller
        self._instruments = instruments
        self._told = told
        self._merge = merge

    async def carry_out(self, key: ObjectKey, owner_uid: str, plan: Plan) -> tuple[Outcome, ...]:
        """Do what the plan says, in its order. One outcome for each action, and each is recorded as expected."""
        outcomes: list[Outcome] = []
        going = True
        for stage in plan.stages:
            if not going:
                outcomes += [Skipped(action) for action in stage.actions]
                continue
            results = await self._run_stage(stage, blocked=_owners_in_the_way(outcomes))
            self._expectations.record(key, owner_uid, results)
            outcomes += results
            going = not stage.essential or not any(failed(result) for result in results)
        for outcome in outcomes:
            self._instruments.acted(
                self._controller, action=label_of(type(outcome.action)), outcome=label_of(type(outcome))
            )
        self._told(key, outcomes)
        return tuple(outcomes)

    async def settle(self, key: ObjectKey, owner_uid: str) -> ApiError | None:
        """Ask the server about each write whose answer was lost. Return what kept it from answering, if anything."""
        for write in self._expectations.unresolved(key, owner_uid):
            try:
                outcome = await self._look_up(write)
            except ApiError as error:
                return error
            self._expectations.resolve(key, write, outcome)
        return None

    async def _look_up(self, write: Write) -> Outcome | None:
        """What became of a write, as the server knows; None when it did not happen."""
        try:
            held = read_meta(await self._client.get(write.resource, write.key))
        except NotFound:
            return None if isinstance(write, Create) else Missing(write)
        match write:
            case Create(owner_uid=owner_uid):
                return AlreadyThere(write, held.resource_version) if _is_owned_by(held, owner_uid) else None
            case Delete(uid=uid):
                return None if held.uid == uid and held.deletion_timestamp is None else Missing(write)
            case Patch() | ThreeWayMerge():
                # Done or not, whoever plans next must have seen at least this version.
                return Done(write, held.resource_version)
            case _:
                assert_never(write)

    async def _run_stage(self, stage: Stage, *, blocked: frozenset[str]) -> list[Outcome]:
        """Creates after everything else, and nothing that waits for a blocked owner. Outcomes in the actions' order."""
        numbered = [(number, action) for number, action in enumerate(stage.actions) if not _waits(action, blocked)]
        creates = [(number, action) for number, action in numbered if isinstance(action, Create)]
        others = [(number, action) for number, action in numbered if not isinstance(action, Create)]
        outcomes = await self._run_together(others) | await self._run_slow_start(creates)
        return [outcomes.get(number, Skipped(action)) for number, action in enumerate(stage.actions)]

    async def _run_together(self, actions: Numbered) -> dict[int, Outcome]:
        """Perform all actions, at most PARALLEL at once, but no more once the server cannot be reached: each of them
        would wait for its own timeout. What is not tried has no outcome.
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
        """Perform creates, one at first; each success makes room for one more, so what is under way doubles with each
        round trip: 1, 2, 4, 8 ... up to PARALLEL. The first failure ends it: what is under way is waited for, and the
        rest is not tried, and has no outcome.
        """
        outcomes: dict[int, Outcome] = {}
        todo = iter(creates)
        lanes, well = 0, True

        async def lane() -> None:
            nonlocal lanes, well
            for number, create in todo:
                outcomes[number] = outcome = await self._perform(create)
                well = well and not failed(outcome)
                if not well:
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
                    return await self._rework(action)
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
            return await self._recognise(action, error)
        return Done(action, read_meta(answer).resource_version)

    async def _predecessor_owns_disks(self, action: Create) -> bool:
        """Whether something that the new object would take up still is that of an earlier one of its name."""
        for resource, key in action.reusable_disks:
            try:
                held = read_meta(await self._client.get(resource, key))
            except NotFound:
                continue
            owner = controller_of(held)
            is_left = owner is not None and (owner.kind, owner.name) == (action.resource.kind, action.key.name)
            if is_left or held.deletion_timestamp is not None:
                return True
        return False

    async def _recognise(self, action: Create, error: AlreadyExists) -> Outcome:
        """Whose is the object that has the name? Ours, from a create whose answer was lost, is as good as done.

        Also when it is being deleted by now: then the cache has to show that before anything is planned anew.
        """
        try:
            held = read_meta(await self._client.get(action.resource, action.key))
        except NotFound:
            return Rejected(action, error)
        if _is_owned_by(held, action.owner_uid):
            return AlreadyThere(action, held.resource_version)
        return Rejected(action, error)

    async def _confirm(self, action: Confirm) -> Outcome:
        held = read_meta(await self._client.get(action.resource, action.key))
        if held.uid != action.uid:
            return Rejected(action, Conflict(f"{action.key} was replaced by another object of that name", code=409))
        if held.deletion_timestamp is not None:
            return Rejected(action, Conflict(f"{action.key} is being deleted", code=409))
        return Done(action)

    async def _rework(self, action: RemoveOwnerReference | ThreeWayMerge) -> Outcome:
        """Change what was just read; again where somebody else wrote in between."""
        for _ in range(REWORKS - 1):
            try:
                return await self._reworked(action)
            except Conflict:
                continue
        return await self._reworked(action)

    async def _reworked(self, action: RemoveOwnerReference | ThreeWayMerge) -> Outcome:
        try:
            current = await self._client.get(action.resource, action.key)
            held = read_meta(current)
        except NotFound:
            return Missing(action)
        except ApiError as error:
            # Nothing was written: what is lost is only the answer to a question.
            return Rejected(action, error)
        if isinstance(action, RemoveOwnerReference):
            patch = _disowned(action, held)
        else:
            patch = _merged(self._merge, action, held, current)
        if not isinstance(patch, bytes):
            return patch
        answer = await self._client.patch(action.resource, action.key, patch, content_type=PatchType.MERGE.value)
        return Done(action, read_meta(answer).resource_version)


def _disowned(action: RemoveOwnerReference, held: ObjectMeta) -> bytes | Outcome:
    """The patch to what is there; the outcome where it is as it should be."""
    if all(reference.uid != action.owner_uid for reference in held.owner_references or ()):
        return Done(action)
    return release_patch(held, action.owner_uid)


def _merged(merge: Merge, action: ThreeWayMerge, held: ObjectMeta, current: bytes) -> bytes | Outcome:
    """The patch to what is there, as far as the templates differ; the outcome where there is nothing to patch."""
    if held.uid != action.uid or held.deletion_timestamp is not None:
        return Missing(action)
    try:
        patch = merge(current, action.old, action.new)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Rejected(action, ApiError(f"{action.key} cannot be read: {error}"))
    return Done(action, held.resource_version) if patch is None else patch


def failed(outcome: Outcome) -> bool:
    """Whether an outcome holds back what should come after it."""
    return isinstance(outcome, Rejected | Unknown | Skipped)


def _is_unanswered(outcome: Outcome) -> bool:
    return isinstance(outcome, Rejected | Unknown) and isinstance(outcome.error, TransportError)


def _outcome_of(action: Action, error: ApiError) -> Outcome:
    match action, error:
        case (Delete() | Patch() | RemoveOwnerReference() | ThreeWayMerge()) as gone, NotFound():
            return Missing(gone)
        case Delete() as replaced, Conflict() as conflict if _uid_mismatch(conflict):
            return Missing(replaced)
        case (Confirm(), _):
            return Rejected(action, error)
        case (_, TransportError(sent=True) | ServerError()):
            # With any 5xx the write may have happened: a server that gave up waiting for etcd answers 500 or 504, a
            # proxy that lost the server 502 or 503.
            return Unknown(action, error)
        case _:
            return Rejected(action, error)


def _owners_in_the_way(outcomes: Sequence[Outcome]) -> frozenset[str]:
    """The owners from whom something could not be taken: what was to come after that must wait (P10)."""
    return frozenset(
        outcome.action.owner_uid
        for outcome in outcomes
        if isinstance(outcome.action, RemoveOwnerReference) and failed(outcome)
    )


def _waits(action: Action, blocked: frozenset[str]) -> bool:
    return isinstance(action, Patch) and action.after_owner in blocked


def _uid_mismatch(error: Conflict) -> bool:
    """Whether it was the precondition of a delete. The server says so in words only, and in two places differently:
    "the UID in the precondition (...) does not match ..." and "Precondition failed: UID in precondition: ...".
    """
    return _UID_PRECONDITION.search(str(error)) is not None


def _is_owned_by(meta: ObjectMeta, uid: str) -> bool:
    owner = controller_of(meta)
    return owner is not None and owner.uid == uid
