"""The reconciler of a kind takes the snapshot, carries out the plan and writes the status. The rules of the kind
decide.

It first asks the server about each write whose answer was lost. After the plan it sends the Events about the writes,
and takes a second snapshot, because the caches have changed in the meantime: the status and then the history are
written from it. The members of a very large set or pool are read in slices, and its plan is made in another thread (see
`side_thread`).
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sized
from contextlib import suppress
from datetime import datetime
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec
import structlog
from msgspec.structs import replace

from controller.apimachinery.field_error import INVALID_SPEC, FieldError
from controller.kinds import Kind
from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.vm_types import ControllerRevision
from controller.replicas.kstatus import INTERNAL_ERROR, defect_status
from controller.running import leaf_errors
from controller.runtime.actions import AnyResource, Confirm, Create, Notice, Outcome, Plan, Stage, waiting
from controller.runtime.execute.births import Owner
from controller.runtime.execute.deletes import Judge
from controller.runtime.execute.executor import Executor
from controller.runtime.execute.late_cache import LateCache
from controller.runtime.execute.refusals import Refusals
from controller.runtime.result import After, Report, facts_of, not_later_than, notices_after, result_of, was_tried
from controller.runtime.settle.expectations import Expectations
from controller.runtime.settle.history_writer import HistoryWriter, replicas_of
from controller.runtime.settle.status_writer import StatusWriter
from controller.runtime.status import recounted, status_patch
from controller.runtime.waits import Wait
from controller.runtime.workers.side_thread import is_large
from informers.errors import ApiError, Forbidden, Invalid
from informers.http.warnings import collected_warnings
from informers.meta import KubeObject, ObjectKey, ObjectMeta
from informers.store import StoreView

log = structlog.get_logger()

GONE = ""
"""The reconciler uses this value as the UID of the owner if the set or pool no longer exists."""

API_WARNING = "ApiWarning"
WARNED = "The API server warns about a write: "
"""The reason and the first words of the Event about a `Warning` header of the API server."""


class Snapshot(Protocol):
    """The set or pool with its `members`, as the caches show them. `settled` is true if they show all own writes (R9).

    `marked` are the numbers of members with marks, such as those that are busy now (P24).
    """

    @property
    def owner(self) -> KubeObject: ...

    @property
    def members(self) -> Sized: ...

    @property
    def revisions(self) -> Iterable[ControllerRevision]: ...

    @property
    def settled(self) -> bool: ...

    @property
    def marked(self) -> Mapping[str, int]: ...


S = TypeVar("S", bound=Snapshot)


class Rules(Protocol[S]):
    """The rules of one kind. Only `prepare` and `take_snapshot` read caches, and all other methods are pure."""

    @property
    def resource(self) -> AnyResource: ...

    @property
    def owners(self) -> StoreView[KubeObject]: ...

    @property
    def refusals(self) -> Refusals: ...

    @property
    def judge(self) -> Judge:
        """The judge of deletes and restarts whose object has changed since the plan was made."""

    def prepare(self, key: ObjectKey, *, now: datetime) -> Iterator[object]:
        """Do a part of `take_snapshot` in slices of a few milliseconds, between which other tasks run."""

    def take_snapshot(self, key: ObjectKey, *, now: datetime, settled: bool) -> S | None:
        """Return the snapshot of the set or pool with this key, or None if the cache does not contain it."""

    def plan(self, snapshot: S) -> Plan: ...

    def plan_absent(self, key: ObjectKey) -> Plan:
        """Return the plan for a key whose set or pool was deleted."""

    def next_status(self, snapshot: S, outcomes: tuple[Outcome, ...], waits: tuple[Wait, ...] | None) -> Any:
        """Return the complete status, as a Struct. `waits` is None if the plan does not know what is needed."""

    def transition_notices(self, old: Any, new: Any) -> tuple[Notice, ...]:
        """Return the notices about a change from the status `old`, or None, to the status `new`."""

    def outcome_notices(self, outcomes: Iterable[Outcome]) -> tuple[Notice, ...]: ...

    def parse_intent(self, owner: Any) -> Any | FieldError:
        """Return the parsed spec, or its first error. The metrics page reads `rolls_out`, whether all outdated members
        are replaced without a request, and `most_unavailable`, a number or None.
        """


async def prepare(rules: Rules[Any], key: ObjectKey, *, now: datetime) -> None:
    """Prepare the next snapshot, and let other tasks run after each slice."""
    for _ in rules.prepare(key, now=now):
        await asyncio.sleep(0)


def is_large_object(snapshot: Snapshot) -> bool:
    """Return True if the set or pool has many members, or if its templates or those of its revisions are large."""
    size = len(msgspec.json.encode(snapshot.owner)) + sum(len(each.data) for each in snapshot.revisions)
    return is_large(members=len(snapshot.members), size=size)


class ReconcilerInstruments(Protocol):
    def stale_pass(self, controller: str) -> None: ...

    def planned(
        self, owner_kind: str, owner: ObjectKey, notices: Iterable[Notice], marked: Mapping[str, int]
    ) -> None: ...

    def owner_gone(self, owner_kind: str, owner: ObjectKey) -> None: ...


class Tools(NamedTuple):
    """The parts of a reconciler that send requests, and the writes that the caches do not show yet."""

    executor: Executor
    expectations: Expectations
    late_cache: LateCache
    status_writer: StatusWriter
    history: HistoryWriter


class RulesReconciler(Generic[S]):
    """Brings the objects of one kind to their desired state. `now` is the wall clock, for times in objects."""

    def __init__(
        self,
        kind: Kind[Any],
        rules: Rules[S],
        tools: Tools,
        *,
        publish: Callable[[ObjectMeta, Iterable[Notice]], Iterable[Notice]],
        now: Callable[[], datetime],
        instruments: ReconcilerInstruments,
        known_status: Container[str] | None = None,
    ) -> None:
        """`publish` returns the Events that were not sent before. `known_status` are the served fields, or None."""
        self._kind = kind
        self._rules = rules
        self._executor, self._expectations, self._late_cache, self._status_writer, self._history = tools
        self._publish = publish
        self._now = now
        self._instruments = instruments
        self._known_status = known_status

    async def reconcile(self, key: ObjectKey) -> Report:
        try:
            return await self._reconcile(key)
        except ApiError:
            raise
        except Exception as error:
            with suppress(ApiError):
                await self._report_defect(key, leaf_errors(error)[0])
            raise

    async def _report_defect(self, key: ObjectKey, error: BaseException) -> None:
        """Write to the status that the set or pool is stalled by an unexpected exception, and publish an Event."""
        owner: Any = self._rules.owners.get(key)
        if owner is None:
            return
        meta: ObjectMeta = owner.metadata
        status = defect_status(owner, error, self._now())
        notice = Notice(reason=INTERNAL_ERROR, message=status.problem, once=str(meta.generation))
        self._tell(meta, (notice,))
        body = status_patch(owner, status, known=self._known_status)
        if body is not None and self._status_writer.may_write(key, meta):
            await self._status_writer.write(key, meta, body)

    async def _reconcile(self, key: ObjectKey) -> Report:
        cached = self._rules.owners.get(key)
        # With an error, the plan writes nothing.
        other_error = await self._executor.resolve(key, GONE if cached is None else cached.metadata.uid)
        await prepare(self._rules, key, now=self._now())
        snapshot, shown = self._take_snapshot(key), self._late_cache.shown(key.namespace)
        if snapshot is None:
            return await self._reconcile_absent(key, other_error)
        if absent_s := self._status_writer.absent_s(key, snapshot.owner.metadata):
            return Report(After(absent_s), facts_of(Plan(), (), other_error=other_error))
        plan, marked = await self._executor.thread.call(self._plan, snapshot, large=is_large_object(snapshot))
        self._report_plan(snapshot, plan, marked)
        settled = snapshot.settled
        try:
            held = await self._late_cache.held(plan, snapshot.owner.metadata, shown)
            if held is not None:
                plan, settled = replace(held, notices=plan.notices), False
        except ApiError as error:
            plan, other_error = replace(waiting(str(error)), notices=plan.notices), other_error or error
        with collected_warnings() as warnings:
            meta = snapshot.owner.metadata
            in_doubt = meta.uid in self._rules.refusals.births.in_doubt
            if in_doubt and any(isinstance(each, Create) and each.resource in (VMS, VMIS) for each in plan.actions):
                doubt = Confirm(resource=self._rules.resource, key=key, uid=meta.uid, why="a new member was deleted")
                plan = replace(plan, stages=(Stage((doubt,)), *plan.stages))
            numbers = len(snapshot.members), replicas_of(snapshot.owner), marked.get("claimed", 0)
            owner = Owner(key, meta.uid, meta.generation, *numbers)
            outcomes = await self._executor.carry_out(owner, plan)
        cached = self._rules.owners.get(key)
        if cached is None or cached.metadata.uid != meta.uid:
            self._instruments.owner_gone(self._kind.kind, key)
        warned = [Notice(reason=API_WARNING, message=f"{WARNED}{text}", once=text) for text in dict.fromkeys(warnings)]
        found = (*notices_after(plan.notices, outcomes), *self._rules.outcome_notices(filter(was_tried, outcomes)))
        self._tell(meta, (*found, *warned))
        # The caches have changed while the plan was carried out. The status must report the latest state.
        latest = await self._recount(key, snapshot, outcomes) if outcomes else snapshot
        written = True
        try:
            waits = plan.waits if settled else None
            written = latest is None or await self._write_status(key, latest, outcomes, waits)
        except ApiError as error:
            other_error = other_error or error
            if isinstance(error, Forbidden | Invalid):
                text = f"the status cannot be written: {error}"
                self._tell(meta, [Notice(reason="FailedStatusUpdate", message=text, once=text)])
        result = result_of(plan, outcomes, settled=settled and written, other_error=other_error)
        cached = self._rules.owners.get(key)
        if cached is not None and (due_s := await self._history.write(cached)) is not None:
            result = not_later_than(result, due_s)
        return Report(result, facts_of(plan, outcomes, other_error=other_error))

    def _tell(self, owner: ObjectMeta, notices: Iterable[Notice]) -> None:
        """Send Events, and note them in the history."""
        self._history.tell(owner, self._publish(owner, notices))

    async def _reconcile_absent(self, key: ObjectKey, other_error: ApiError | None) -> Report:
        """Carry out the plan for a set or pool that was deleted, and remove its expectations."""
        self._status_writer.forget(key)
        self._history.forget(key)
        self._late_cache.forget(key)
        settled = self._expectations.settled(key, GONE)
        plan = self._rules.plan_absent(key) if settled else Plan()
        if settled:
            self._expectations.forget(key)
        outcomes = await self._executor.carry_out(Owner(key, GONE), plan)
        result = result_of(plan, outcomes, settled=settled, other_error=other_error)
        return Report(result, facts_of(plan, outcomes, other_error=other_error))

    def _take_snapshot(self, key: ObjectKey) -> S | None:
        owner = self._rules.owners.get(key)
        if owner is None:
            return None
        settled = self._expectations.settled(key, owner.metadata.uid)
        return self._rules.take_snapshot(key, now=self._now(), settled=settled)

    async def _recount(self, key: ObjectKey, planned: S, outcomes: Iterable[Outcome]) -> S | None:
        """Return the snapshot for the status, or None: a deleted set or pool without its finalizer is probably gone."""
        if planned.owner.metadata.deletion_timestamp is not None and any(
            outcome.action.resource is self._rules.resource for outcome in outcomes
        ):
            return None
        await prepare(self._rules, key, now=self._now())
        latest = self._take_snapshot(key)
        return None if latest is None else recounted(planned, latest)

    def _plan(self, snapshot: S) -> tuple[Plan, Mapping[str, int]]:
        return self._rules.plan(snapshot), snapshot.marked

    def _report_plan(self, snapshot: S, plan: Plan, marked: Mapping[str, int]) -> None:
        for notice in plan.notices:
            if notice.reason == INVALID_SPEC:
                log.error("invalid spec, no action is taken", why=notice.message)
        if snapshot.settled:
            self._instruments.planned(self._kind.kind, snapshot.owner.metadata.key, plan.notices, marked)
        else:
            self._instruments.stale_pass(self._kind.name)

    async def _write_status(
        self, key: ObjectKey, snapshot: S, outcomes: tuple[Outcome, ...], waits: tuple[Wait, ...] | None
    ) -> bool:
        """Write the status if it differs (R11). Return False if it must be written later. Raise ApiError."""
        owner: Any = snapshot.owner
        if owner.metadata.deletion_timestamp is not None and not snapshot.settled:
            return True  # the last write may have removed the last finalizer, so the object may be gone
        meta, call, large = snapshot.owner.metadata, self._executor.thread.call, is_large_object(snapshot)
        status = await call(self._rules.next_status, snapshot, outcomes, waits, large=large)
        body = status_patch(owner, status, known=self._known_status)
        if body is None:
            return True
        if not self._status_writer.may_write(key, meta):
            return False
        answer = await self._status_writer.write(key, meta, body)
        if not answer:
            return False
        self._tell(meta, self._rules.transition_notices(owner.status, status))
        self._history.tell_status(owner, status, answer)
        return True
