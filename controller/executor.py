"""Carries out plans: the only code that writes children. It decides nothing.

Stages run in order, a failed essential stage ends the plan. Within a stage creates start slowly (R4): 1, 2, 4, 8 ...
are under way at once, and when one fails, the rest is not tried, so a full quota costs one request and not 250.
Everything else of a stage is tried, whatever happens to its neighbours. How many requests are on the wire at once is
the client's limit.

A write never raises: its failure is a value. A write whose answer is lost is `Unknown`, and `settle` asks the server
about it before anything more happens for that key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol, assert_never

import msgspec
from msgspec import Struct

from controller.expectations import Expectations, Write
from controller.planning import (
    Action,
    AlreadyThere,
    Confirm,
    Create,
    Delete,
    Done,
    Outcome,
    Patch,
    Plan,
    Refused,
    Skipped,
    Stage,
    Unknown,
    Vanished,
)
from informers.client import ApiClient
from informers.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    NotFound,
    ServerTimeout,
    StatusError,
    TransportError,
)
from informers.meta import ObjectKey, ObjectMeta, controller_of

PARALLEL = 50
"""Tasks for one stage: more would only queue up before the client's own limit on requests in flight."""


class Written(Struct, frozen=True, rename="camel"):
    """The two fields of a write's answer that anybody reads."""

    resource_version: str = ""
    uid: str = ""


class _WrittenObject(Struct, frozen=True):
    metadata: Written = Written()


class _Identity(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


_decode_written = msgspec.json.Decoder(_WrittenObject).decode
_decode_identity = msgspec.json.Decoder(_Identity).decode


class ActionInstruments(Protocol):
    def acted(self, controller: str, *, action: str, outcome: str) -> None: ...


class Executor:
    """One for both kinds of owner. `controller` is the name that its metrics carry."""

    def __init__(
        self, client: ApiClient, expectations: Expectations, *, controller: str, instruments: ActionInstruments
    ) -> None:
        self._client = client
        self._expectations = expectations
        self._controller = controller
        self._instruments = instruments

    async def carry_out(self, key: ObjectKey, owner_uid: str, plan: Plan) -> tuple[Outcome, ...]:
        """Do what the plan says, in its order. One outcome for each action, and each is recorded as expected."""
        outcomes: list[Outcome] = []
        going = True
        for stage in plan.stages:
            if not going:
                outcomes += [Skipped(action) for action in stage.actions]
                continue
            results = await self._run_stage(stage)
            self._expectations.record(key, owner_uid, results)
            outcomes += results
            going = not stage.essential or not any(failed(result) for result in results)
        for outcome in outcomes:
            self._instruments.acted(
                self._controller, action=type(outcome.action).__name__, outcome=type(outcome).__name__
            )
        return tuple(outcomes)

    async def settle(self, key: ObjectKey) -> None:
        """Ask the server about each write whose answer was lost. Raises ApiError while it cannot be asked."""
        for write in self._expectations.doubts(key):
            self._expectations.resolve(key, write, await self._look_up(write))

    async def _look_up(self, write: Write) -> Outcome | None:
        """What became of a write, as the server knows; None when it did not happen."""
        try:
            held = _decode_identity(await self._client.get(write.resource, write.key)).metadata
        except NotFound:
            return None if isinstance(write, Create) else Vanished(write)
        match write:
            case Create(owner_uid=owner_uid):
                return AlreadyThere(write, held.resource_version) if _is_ours(held, owner_uid) else None
            case Delete(uid=uid):
                return None if held.uid == uid and held.deletion_timestamp is None else Vanished(write)
            case Patch():
                # Done or not, whoever plans next must have seen at least this version.
                return Done(write, held.resource_version)

    async def _run_stage(self, stage: Stage) -> list[Outcome]:
        creates = [action for action in stage.actions if isinstance(action, Create)]
        others = [action for action in stage.actions if not isinstance(action, Create)]
        return await self._run_together(others) + await self._run_slow_start(creates)

    async def _run_together(self, actions: Sequence[Action]) -> list[Outcome]:
        """Perform all actions, at most PARALLEL at once."""
        if len(actions) == 1:
            return [await self._perform(actions[0])]
        outcomes: dict[int, Outcome] = {}
        todo = iter(enumerate(actions))

        async def lane() -> None:
            for index, action in todo:
                outcomes[index] = await self._perform(action)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(PARALLEL, len(actions))):
                group.create_task(lane(), name="executor-lane")
        return [outcomes[index] for index in range(len(actions))]

    async def _run_slow_start(self, creates: Sequence[Create]) -> list[Outcome]:
        """Perform creates, one at first; each success makes room for one more, so what is under way doubles with each
        round trip: 1, 2, 4, 8 ... up to PARALLEL. The first failure ends it: what is under way is waited for, and the
        rest is not tried.
        """
        outcomes: dict[int, Outcome] = {}
        todo = iter(enumerate(creates))
        lanes, well = 0, True

        async def lane() -> None:
            nonlocal lanes, well
            for index, create in todo:
                outcomes[index] = outcome = await self._perform(create)
                well = well and not failed(outcome)
                if not well:
                    return
                if lanes < min(PARALLEL, len(creates) - len(outcomes)):
                    lanes += 1
                    group.create_task(lane(), name="executor-lane")

        async with asyncio.TaskGroup() as group:
            lanes += 1
            group.create_task(lane(), name="executor-lane")
        return [outcomes.get(index, Skipped(create)) for index, create in enumerate(creates)]

    async def _perform(self, action: Action) -> Outcome:
        try:
            match action:
                case Create():
                    return await self._create(action)
                case Delete():
                    propagation = "Foreground" if action.foreground else "Background"
                    await self._client.delete(action.resource, action.key, uid=action.uid, propagation=propagation)
                    return Done(action)
                case Patch():
                    answer = await self._client.patch(
                        action.resource, action.key, action.body, content_type=action.type.value
                    )
                    return Done(action, _decode_written(answer).metadata.resource_version)
                case Confirm():
                    return await self._confirm(action)
                case _:
                    assert_never(action)
        except ApiError as error:
            return _outcome_of(action, error)

    async def _create(self, action: Create) -> Outcome:
        try:
            answer = await self._client.create(action.resource, action.key.namespace, action.body)
        except AlreadyExists as error:
            return await self._recognise(action, error)
        return Done(action, _decode_written(answer).metadata.resource_version)

    async def _recognise(self, action: Create, error: AlreadyExists) -> Outcome:
        """Whose is the object that has the name? Ours, from a create whose answer was lost, is as good as done."""
        held = _decode_identity(await self._client.get(action.resource, action.key)).metadata
        return (
            AlreadyThere(action, held.resource_version) if _is_ours(held, action.owner_uid) else Refused(action, error)
        )

    async def _confirm(self, action: Confirm) -> Outcome:
        held = _decode_identity(await self._client.get(action.resource, action.key)).metadata
        if held.uid != action.uid:
            return Refused(action, Conflict(f"{action.key} was replaced by another object of that name", code=409))
        if held.deletion_timestamp is not None:
            return Refused(action, Conflict(f"{action.key} is being deleted", code=409))
        return Done(action)


def failed(outcome: Outcome) -> bool:
    """Whether an outcome holds back what should come after it."""
    return isinstance(outcome, Refused | Unknown | Skipped)


def _outcome_of(action: Action, error: ApiError) -> Outcome:
    match action, error:
        case (Delete() | Patch()) as gone, NotFound():
            return Vanished(gone)
        case Delete() as replaced, Conflict() as conflict if _uid_mismatch(conflict):
            return Vanished(replaced)
        case ((Create() | Delete() | Patch()), TransportError(sent=True) | ServerTimeout()):
            return Unknown(action, error)
        case ((Create() | Delete() | Patch()), StatusError(code=500)):
            # "etcdserver: request timed out" arrives as a 500, and the write may have happened.
            return Unknown(action, error)
        case _:
            return Refused(action, error)


def _uid_mismatch(error: Conflict) -> bool:
    message = str(error).lower()
    return "precondition" in message and "uid" in message


def _is_ours(meta: ObjectMeta, owner_uid: str) -> bool:
    owner = controller_of(meta)
    return owner is not None and owner.uid == owner_uid and meta.deletion_timestamp is None
