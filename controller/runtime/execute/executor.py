"""The executor carries out plans. No other code writes the VMs and VMIs of a set or pool. It makes no decisions.

Stages run in order. After a failure in an essential stage, the later ones are skipped. The creates of a stage start
slowly (R4): 1, 2, 4, 8 ... at once, and none after the first failure, so a full quota rejects one request. The other
actions do not depend on each other, but none starts while the API server is down or overloaded.

A failure is an outcome, not an exception. A lost answer is `Unknown`: before the next plan, `resolve` asks the server
whether the write happened.

If the executor is cancelled, at the loss of the lease or the end of the shutdown time, it aborts the running requests.
The next leader chooses the same names, and so finds what was already created.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice, takewhile
from typing import Protocol, TypeAlias, assert_never

from msgspec.structs import replace

from controller.runtime.actions import (
    Action,
    AlreadyThere,
    Check,
    Confirm,
    ConfirmFree,
    Create,
    Delete,
    Done,
    ExpandClaim,
    Missing,
    Outcome,
    Patch,
    Pause,
    Plan,
    Postponed,
    Rejected,
    RemoveOwnerReference,
    Restart,
    Skipped,
    Stage,
    SuccessorRefused,
    ThreeWayMerge,
    Unknown,
    Unserved,
    label_of,
)
from controller.runtime.execute.births import Owner
from controller.runtime.execute.deletes import (
    NO_JUDGE,
    Judge,
    disk_error,
    judged_error,
    perform_delete,
    successor_error,
)
from controller.runtime.execute.disk_check import DiskCheck, metadata_pages
from controller.runtime.execute.patches import error_of_create, outcome_of_patch, read_and_patch, without_content
from controller.runtime.execute.refusals import Refusals
from controller.runtime.execute.restarts import Restarts
from controller.runtime.result import is_outage, name_of, was_tried
from controller.runtime.settle.cache_check import CacheCheck
from controller.runtime.settle.expectations import Expectations, Write
from controller.runtime.workers.loop_share import measured_part
from controller.runtime.workers.side_thread import SideThread
from informers.errors import AlreadyExists, ApiError, Conflict, NotFound, ServerError, TransportError
from informers.http.warnings import rewritten_warnings
from informers.meta import ObjectKey, is_controlled_by
from informers.objects import ObjectClient, read_meta
from informers.resource import UNDECODABLE

PARALLEL = 50
"""The maximum number of parallel tasks for one stage. The API client has a limit too, so more tasks would only wait."""

LOOKUPS = 10
FORGOTTEN_AFTER_S = 300.0
"""A create that was not tried again for this time, in seconds, counts as never postponed."""

Numbered: TypeAlias = Sequence[tuple[int, Action]]
"""Actions of one stage, each with its index in the stage."""


class ActionInstruments(Protocol):
    def acted(self, controller: str, *, action: str, outcome: str) -> None: ...


class Executor:
    """Carries out the plans for one kind, such as pools. `controller` is a label of the metrics."""

    def __init__(
        self,
        client: ObjectClient,
        expectations: Expectations,
        *,
        controller: str,
        instruments: ActionInstruments,
        report: Callable[[ObjectKey, Sequence[Outcome]], None] = lambda _key, _outcomes: None,
        judge: Judge = NO_JUDGE,
        check: CacheCheck | None = None,
        refusals: Refusals | None = None,
        thread: SideThread | None = None,
    ) -> None:
        """`report` is called after each plan, `judge` judges changed objects again, `check` gets all outcomes, and
        `refusals` remembers refused writes. Large template changes are computed in `thread`.
        """
        self.thread = thread or SideThread()
        self._client = client
        self._judge = judge
        self._restarts = Restarts(client, judge)
        self._postponed: dict[ObjectKey, tuple[float, float]] = {}
        """For each postponed create: the times of the first and of the last try. The oldest last try is the first."""
        self._expectations = expectations
        self._controller = controller
        self._instruments = instruments
        self._report = report
        self._check = check or CacheCheck(client)
        self._refusals = refusals or Refusals()

    async def carry_out(self, owner: Owner, plan: Plan) -> tuple[Outcome, ...]:
        """Carry out the plan, record the writes, and return one outcome for each action."""
        outcomes: list[Outcome] = []
        proceed = True
        for stage in plan.stages:
            if not proceed:
                outcomes += [Skipped(action) for action in stage.actions]
                continue
            results = await self._run_stage(stage, owner, blocked=_blocked_owners(outcomes))
            self._expectations.record(owner.key, owner.uid, results)
            outcomes += results
            proceed = not stage.essential or not any(failed(result) for result in results)
        for outcome in outcomes:
            self._instruments.acted(self._controller, action=label_of(type(outcome.action)), outcome=name_of(outcome))
        tried = list(filter(was_tried, outcomes))
        for outcome in tried:
            self._check.observe(outcome)
        self._report(owner.key, tried)
        return tuple(outcomes)

    async def resolve(self, key: ObjectKey, owner_uid: str) -> ApiError | None:
        """Ask the server about each write whose answer was lost, record it, and return the first error, or None."""
        todo = iter(self._expectations.unresolved(key, owner_uid))
        errors: list[ApiError] = []

        async def lane(writes: Iterable[Write]) -> None:
            for write in writes:
                try:
                    outcome = await self._look_up(write)
                except ApiError as error:
                    errors.append(error)
                else:
                    self._expectations.resolve(key, write, outcome)
                if errors:
                    return

        await lane(islice(todo, 1))
        if not errors:
            async with asyncio.TaskGroup() as group:
                for _ in range(LOOKUPS):
                    group.create_task(measured_part(lane, todo), name="executor-lookup")
        return errors[0] if errors else None

    async def _look_up(self, write: Write) -> Outcome | None:
        """Read the object of an earlier write, and return the outcome of that write, or None if it did not happen."""
        try:
            found = read_meta(await self._client.get(write.resource, write.key))
        except NotFound:
            return None if isinstance(write, Create) else Missing(write)
        match write:
            case Create(owner_uid=owner_uid):
                if not is_controlled_by(found, owner_uid):
                    return None
                await DiskCheck(self._client, ()).taken_before(write)
                return AlreadyThere(write, found.resource_version)
            case Delete(uid=uid):
                return None if found.uid == uid and found.deletion_timestamp is None else Missing(write)
            case Patch():
                # It is not known whether the write happened. In both cases the cache must reach this version before the
                # next plan is made. The finalizer may still be there, so its removal is not awaited.
                return Done(replace(write, finalizer=""), found.resource_version)
            case ThreeWayMerge() | Restart() | Pause():
                return Done(write, found.resource_version)
            case _:
                assert_never(write)

    async def _run_stage(self, stage: Stage, owner: Owner, *, blocked: frozenset[str]) -> list[Outcome]:
        """Send the creates after all others, but no patches after the owners `blocked`, nor refused writes that wait.
        Return the outcomes in the order of the actions.
        """
        numbered = [(number, action) for number, action in enumerate(stage.actions) if not _waits(action, blocked)]
        waiting: dict[int, Outcome] = {**self._refusals.answers(owner, numbered)}
        numbered = [each for each in numbered if each[0] not in waiting]
        creates = [(number, action) for number, action in numbered if isinstance(action, Create)]
        others = [(number, action) for number, action in numbered if not isinstance(action, Create)]
        tried = await self._run_together(others) | await self._run_slow_start(creates)
        outcomes = waiting | {number: self._refusals.timed(owner, outcome) for number, outcome in tried.items()}
        return [outcomes.get(number, Skipped(action)) for number, action in enumerate(stage.actions)]

    async def _run_together(self, actions: Numbered) -> dict[int, Outcome]:
        """Perform at most PARALLEL actions at once. Return the outcomes by index, without those that were not tried:
        the first runs alone, and a sign of an outage or overload, or a refused successor, ends the starts.
        """
        outcomes: dict[int, Outcome] = {}
        todo = iter(actions)
        serving = True

        async def lane(actions: Iterable[tuple[int, Action]]) -> None:
            nonlocal serving
            for number, action in actions:
                outcomes[number] = outcome = await self._perform(action)
                is_down = isinstance(outcome, Rejected | Unknown) and is_outage(outcome.error)
                serving = serving and not is_down and not isinstance(outcome, SuccessorRefused)
                if not serving:
                    return

        await lane(islice(todo, 1))
        if serving:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(PARALLEL, len(actions) - 1)):
                    group.create_task(measured_part(lane, todo), name="executor-lane")
        return outcomes

    async def _run_slow_start(self, creates: Numbered) -> dict[int, Outcome]:
        """Perform the creates, first one, and with each success one more at once, up to PARALLEL, until the first
        failure. Return the outcomes by index, without those that were not tried.
        """
        outcomes: dict[int, Outcome] = {}
        disks = DiskCheck(self._client, (create for _, create in creates if isinstance(create, Create)))
        todo = iter(creates)
        lanes, succeeding = 0, True

        async def lane() -> None:
            nonlocal lanes, succeeding
            for number, create in todo:
                outcomes[number] = outcome = await self._perform(create, disks)
                succeeding = succeeding and not failed(outcome)
                if not succeeding:
                    return
                if lanes < min(PARALLEL, len(creates) - len(outcomes)):
                    lanes += 1
                    group.create_task(measured_part(lane), name="executor-lane")

        async with asyncio.TaskGroup() as group:
            lanes += 1
            group.create_task(measured_part(lane), name="executor-lane")
        return outcomes

    async def _perform(self, action: Action, disks: DiskCheck | None = None) -> Outcome:
        """Perform the action. No text of the server leaves this method with a quote of the written object."""
        hide = partial(without_content, action)
        with rewritten_warnings(hide):
            lost = await disk_error(self._client, action)
            outcome = await self._send(action, disks) if lost is None else Rejected(action, lost)
        if isinstance(outcome, Rejected | Unknown):
            outcome.error.args = (hide(str(outcome.error)),)
        return outcome

    async def _send(self, action: Action, disks: DiskCheck | None) -> Outcome:
        try:
            match action:
                case Create():
                    return await self._create(action, disks)
                case Delete():
                    return await perform_delete(self._client, action, self._judge)
                case Patch() | ThreeWayMerge() if problem := await judged_error(self._client, action, self._judge):
                    return Rejected(action, problem)
                case Patch():
                    if action.before and (problem := await successor_error(self._client, action.before)):
                        return SuccessorRefused(action.before, problem)
                    answer = await self._client.patch(
                        action.resource, action.key, action.body, content_type=action.type.value
                    )
                    return outcome_of_patch(action, action.body, answer)
                case RemoveOwnerReference() | ThreeWayMerge() | ExpandClaim():
                    return await read_and_patch(self._client, action, self.thread)
                case Confirm():
                    return await self._confirm(action)
                case ConfirmFree():
                    return await self._confirm_free(action)
                case Restart():
                    return await self._restarts.request(action)
                case Pause():
                    return await self._restarts.pause(action)
                case _:
                    assert_never(action)
        except ApiError as error:
            return _outcome_of(action, error)

    async def _create(self, action: Create, disks: DiskCheck | None) -> Outcome:
        if disks is not None and (reason := await disks.obstacle(action)):
            return self._postpone(action, reason)
        self._postponed.pop(action.key, None)
        before = self._check.version(action)
        try:
            answer = await self._client.create(action.resource, action.key.namespace, action.body)
        except AlreadyExists as error:
            outcome = await self._resolve_name_conflict(action, error)
            if disks is not None and isinstance(outcome, AlreadyThere):
                await disks.taken(action)
            return outcome
        made = read_meta(answer)
        version = made.resource_version
        self._check.created(action, version, before=before)
        if disks is not None:
            await disks.taken(action)
        if (lost := error_of_create(action, made)) is None:
            return Done(action, version, made.uid)
        # Without its owner it belongs to no set or pool. Without its mark it is surplus, and a scale-in might choose a
        # VM that serves in its place. A disk that it uses again could not come back, and is its own as soon as KubeVirt
        # has seen it.
        unseen, key = version if action.reusable_disks else "", action.key
        with suppress(ApiError):
            await self._client.delete(action.resource, key, uid=made.uid, propagation="Background", version=unseen)
        return Rejected(action, lost)

    def _postpone(self, action: Create, reason: str) -> Postponed:
        now, postponed = asyncio.get_running_loop().time(), self._postponed
        forgotten = takewhile(lambda key: now - postponed[key][1] >= FORGOTTEN_AFTER_S, postponed)
        for key in tuple(forgotten):
            del postponed[key]
        since, _ = postponed.pop(action.key, (now, now))
        postponed[action.key] = since, now
        return Postponed(action, reason, now - since)

    async def _resolve_name_conflict(self, action: Create, error: AlreadyExists) -> Outcome:
        """Return `AlreadyThere` if the object has the same owner: the answer to an earlier create was lost.

        This is so even if it is being deleted. Then the next plan waits until the cache shows the deletion.
        """
        with suppress(NotFound):
            found = read_meta(await self._client.get(action.resource, action.key))
            if is_controlled_by(found, action.owner_uid):
                return AlreadyThere(action, found.resource_version)
        return Rejected(action, error)

    async def _confirm(self, action: Confirm) -> Outcome:
        found = read_meta(await self._client.get(action.resource, action.key))
        if found.uid != action.uid:
            return Rejected(action, Conflict(f"{action.key} was replaced by another object of the same name", code=409))
        if found.deletion_timestamp is not None:
            return Rejected(action, Conflict(f"{action.key} is being deleted", code=409))
        return Done(action)

    async def _confirm_free(self, action: ConfirmFree) -> Outcome:
        place = action.resource, action.key.namespace
        try:
            async for page in metadata_pages(self._client, place, selector=action.selector):
                for each in page.items or ():
                    if action.taken(each.metadata):
                        return Rejected(action, Conflict(f"{each.metadata.name} exists and has no owner", code=409))
        except UNDECODABLE as error:
            return Rejected(action, TransportError(f"the answer is no list: {error}", sent=True))
        return Done(action)


def failed(outcome: Outcome) -> bool:
    return isinstance(outcome, Rejected | Unknown | Unserved | Skipped)


def _outcome_of(action: Action, error: ApiError) -> Outcome:
    if isinstance(action, Check):
        return Rejected(action, error)
    match error:
        case NotFound() if not isinstance(action, Create):
            return Missing(action)
        case TransportError(sent=True) | ServerError():
            # After an answer with a 5xx status the write may have happened. The server answers 500 or 504 after a
            # timeout of etcd. A proxy answers 502 or 503 if the proxy loses the connection to the server.
            return Unknown(action, error)
        case _:
            return Rejected(action, error)


def _blocked_owners(outcomes: Sequence[Outcome]) -> frozenset[str]:
    """Return the UIDs of the VMs whose disks could not be kept (P10) or expanded (P21)."""
    return frozenset(
        outcome.action.owner_uid
        for outcome in outcomes
        if isinstance(outcome.action, RemoveOwnerReference | ExpandClaim) and failed(outcome)
    )


def _waits(action: Action, blocked: frozenset[str]) -> bool:
    if isinstance(action, ThreeWayMerge):
        return action.uid in blocked
    return isinstance(action, Patch) and action.after_owner in blocked
