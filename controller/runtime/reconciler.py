"""The shell around the rules of a kind: snapshot, plan, outcomes, status. It decides nothing; it asks the rules.

One pass: clear up what became of writes whose answer was lost; look; plan; carry the plan out; look again, since the
cache has moved on meanwhile; write the status if it differs; say when to come back.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

import structlog

from controller.apimachinery.field_error import INVALID_SPEC
from controller.events.recorder import EventRecorder, ObjectRef
from controller.kinds import Kind
from controller.runtime.executor import Executor
from controller.runtime.expectations import Expectations
from controller.runtime.plan import AnyResource, Notice, Outcome, Plan
from controller.runtime.result import Report, facts_of, result_of
from controller.runtime.status import recounted, status_patch
from controller.runtime.status_writer import StatusWriter
from informers.errors import ApiError
from informers.meta import KubeObject, ObjectKey, ObjectMeta
from informers.store import StoreView

log = structlog.get_logger()

GONE = ""
"""In the place of the UID of an owner that is gone."""


class Snapshot(Protocol):
    """What a pass knows, of which the shell needs two things. `settled`: the caches show all of our own writes (R9)."""

    @property
    def owner(self) -> KubeObject: ...

    @property
    def settled(self) -> bool: ...


S = TypeVar("S", bound=Snapshot)


class Rules(Protocol[S]):
    """One kind's rules, bound to the caches that they look at. All but looking is pure."""

    @property
    def resource(self) -> AnyResource: ...

    @property
    def owners(self) -> StoreView[KubeObject]: ...

    def take_snapshot(self, key: ObjectKey, *, now: datetime, settled: bool) -> S | None:
        """The owner of this key and its surroundings; None when there is no such owner."""

    def plan(self, snapshot: S) -> Plan: ...

    def plan_absent(self, key: ObjectKey) -> Plan:
        """What is left to do for an owner that is gone."""

    def next_status(self, snapshot: S, outcomes: tuple[Outcome, ...]) -> Any:
        """The whole status after a pass with these outcomes, as a Struct."""

    def transition_notices(self, old: Any, new: Any) -> tuple[Notice, ...]:
        """What the change from the old status (None if there is none) to the new one tells readers of the owner."""

    def outcome_notices(self, outcomes: Iterable[Outcome]) -> tuple[Notice, ...]: ...

    def rolls_out(self, owner: Any) -> bool:
        """True if the owner replaces all its outdated children unasked."""


class StaleInstruments(Protocol):
    def stale_pass(self, controller: str) -> None: ...


class RulesReconciler(Generic[S]):
    """Brings one object of a kind to what it asks for. `now` is the wall clock, for times that objects carry."""

    def __init__(
        self,
        kind: Kind[Any],
        rules: Rules[S],
        *,
        executor: Executor,
        expectations: Expectations,
        status_writer: StatusWriter,
        recorder: EventRecorder,
        now: Callable[[], datetime],
        instruments: StaleInstruments,
        known_status: Container[str] | None = None,
    ) -> None:
        """`known_status` are the status fields that the served schema knows; None stands for all."""
        self._kind = kind
        self._rules = rules
        self._executor = executor
        self._expectations = expectations
        self._status_writer = status_writer
        self._recorder = recorder
        self._now = now
        self._instruments = instruments
        self._known_status = known_status

    async def reconcile(self, key: ObjectKey) -> Report:
        trouble = await self._settle(key)
        snapshot = self._take_snapshot(key)
        if snapshot is None:
            return await self._clear_up_after(key, trouble)
        todo = self._rules.plan(snapshot)
        self._note(snapshot, todo)
        outcomes = await self._executor.carry_out(key, snapshot.owner.metadata.uid, todo)
        self._publish(snapshot.owner.metadata, (*todo.notices, *self._rules.outcome_notices(outcomes)))
        # await: the cache has moved on while the plan was carried out, and the status tells what is true now.
        latest = self._recount(key, snapshot) if outcomes else snapshot
        written = True
        try:
            written = latest is None or await self._write_status(key, latest, outcomes)
        except ApiError as error:
            trouble = trouble or error
        result = result_of(todo, outcomes, settled=snapshot.settled and written, trouble=trouble)
        return Report(result, facts_of(todo, outcomes, trouble=trouble))

    async def _clear_up_after(self, key: ObjectKey, trouble: ApiError | None) -> Report:
        """The owner is gone: do what is left to do, and forget it."""
        self._status_writer.forget(key)
        settled = self._expectations.settled(key, GONE)
        todo = self._rules.plan_absent(key) if settled else Plan()
        if settled:
            self._expectations.forget(key)
        outcomes = await self._executor.carry_out(key, GONE, todo)
        result = result_of(todo, outcomes, settled=settled, trouble=trouble)
        return Report(result, facts_of(todo, outcomes, trouble=trouble))

    async def _settle(self, key: ObjectKey) -> ApiError | None:
        """Clear up what became of writes whose answer was lost. While that fails, the plan is held and says so."""
        owner = self._rules.owners.get(key)
        return await self._executor.settle(key, GONE if owner is None else owner.metadata.uid)

    def _take_snapshot(self, key: ObjectKey) -> S | None:
        owner = self._rules.owners.get(key)
        if owner is None:
            return None
        settled = self._expectations.settled(key, owner.metadata.uid)
        return self._rules.take_snapshot(key, now=self._now(), settled=settled)

    def _recount(self, key: ObjectKey, planned: S) -> S | None:
        latest = self._take_snapshot(key)
        return None if latest is None else recounted(planned, latest)

    def _note(self, snapshot: S, todo: Plan) -> None:
        for notice in todo.notices:
            if notice.reason == INVALID_SPEC:
                log.error("invalid spec, nothing is done", why=notice.message)
        if not snapshot.settled:
            self._instruments.stale_pass(self._kind.name)

    async def _write_status(self, key: ObjectKey, snapshot: S, outcomes: tuple[Outcome, ...]) -> bool:
        """Bring the status up to date (R11). False when that has to wait for the cache. Raises ApiError."""
        owner: Any = snapshot.owner
        status, meta = self._rules.next_status(snapshot, outcomes), snapshot.owner.metadata
        body = status_patch(owner, status, known=self._known_status)
        if body is None:
            return True
        if not self._status_writer.may_write(key, meta.uid):
            return False
        if not await self._status_writer.write(key, meta.uid, body):
            return False
        self._publish(meta, self._rules.transition_notices(owner.status, status))
        return True

    def _publish(self, owner: ObjectMeta, notices: tuple[Notice, ...]) -> None:
        if not notices:
            return
        ref = ObjectRef(
            api_version=self._rules.resource.api_version,
            kind=self._rules.resource.kind,
            namespace=owner.namespace,
            name=owner.name,
            uid=owner.uid,
            resource_version=owner.resource_version,
        )
        self._recorder.publish(ref, notices, component=self._kind.component)
