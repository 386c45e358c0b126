"""A controller process for one kind on the fake API server. The executor and the reconciler are real. There are no
workers.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from msgspec.structs import replace

from controller.kinds import Kind
from controller.runtime.actions import Action, Notice, Outcome, Plan, Postponed, Skipped, Stage
from controller.runtime.execute.births import Owner
from controller.runtime.execute.executor import Executor
from controller.runtime.execute.late_cache import LateCache
from controller.runtime.execute.refusals import Refusals
from controller.runtime.reconciler import RulesReconciler, Tools
from controller.runtime.result import Report
from controller.runtime.settle.expectations import Expectations
from controller.runtime.settle.history_writer import HistoryWriter
from controller.runtime.settle.status_writer import StatusWriter
from informers.meta import ObjectKey
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.caches import LaggingCache
from tests.fakes.requests import Document, Request

T = TypeVar("T")


class RecordedNotices:
    def __init__(self) -> None:
        self.published: list[Notice] = []

    def publish(self, owner: object, notices: Iterable[Notice]) -> list[Notice]:
        new = list(notices)
        self.published += new
        return new


class Counts(Counter[str]):
    """The metrics that a reconciler and its executor report. `on_plan` is called as soon as a plan is made."""

    on_plan: Callable[[], None] = staticmethod(lambda: None)

    def acted(self, controller: str, *, action: str, outcome: str) -> None:
        self[f"{action} {outcome}"] += 1

    def stale_pass(self, controller: str) -> None:
        self["stale"] += 1
        self.on_plan()

    def planned(self, owner_kind: str, owner: ObjectKey, notices: Iterable[Notice], busy: int) -> None:
        self["planned"] += 1
        self.on_plan()

    def owner_gone(self, owner_kind: str, owner: ObjectKey) -> None:
        self["owner gone"] += 1


class ReconcilerProcess:
    """A controller process. `children` are the caches of the kinds that the controller writes."""

    def __init__(
        self,
        server: FakeApiServer,
        kind: Kind[Any],
        rules: Any,
        *,
        owners: LaggingCache[Any],
        children: Iterable[LaggingCache[Any]],
        now: Callable[[], datetime],
        new_refusals: Callable[[], Refusals] = Refusals,
    ) -> None:
        self.recorder = RecordedNotices()
        self.counts = Counts()
        self.actions: list[Action] = []
        self._server = server
        self._kind = kind
        self.rules = rules
        self._owners = owners
        self._children = tuple(children)
        self._now = now
        self._new_refusals = new_refusals
        self.restart()

    def restart(self) -> None:
        """Start a new process with the same caches. The new process does not know the writes of the earlier process."""
        self.rules = replace(self.rules, refusals=self._new_refusals())
        written = self._expectations(self._children)
        self.executor = Executor(
            self._server,
            written,
            controller=self._kind.name,
            instruments=self.counts,
            report=self._keep,
            judge=self.rules.judge,
            refusals=self.rules.refusals,
        )
        stores = {cache.resource: cache.store for cache in self._children}
        late_cache = LateCache(self._server, stores, lambda *_: None, self._kind.finalized)
        of_status = self._expectations([self._owners])
        status_writer = StatusWriter(self._server, self.rules.resource, of_status)
        history = HistoryWriter(self._server, self.rules.resource, of_status, self._now)
        self.reconciler = RulesReconciler(
            self._kind,
            self.rules,
            Tools(self.executor, written, late_cache, status_writer, history),
            publish=self.recorder.publish,
            now=self._now,
            instruments=self.counts,
        )

    def catch_up(self) -> None:
        for cache in dict.fromkeys((self._owners, *self._children)):
            cache.catch_up()

    async def reconcile(self, key: ObjectKey) -> Report:
        return await self.reconciler.reconcile(key)

    async def carry_out(self, key: ObjectKey, owner_uid: str, stages: Sequence[Stage]) -> tuple[Outcome, ...]:
        """Carry out the stages of an earlier plan, without making a new plan."""
        return await self.executor.carry_out(Owner(key, owner_uid), Plan(stages=tuple(stages)))

    async def kill_after(self, writes: int, work: Coroutine[Any, Any, T]) -> T | None:
        """Run `work`. After this number of writes, kill the process, start a new process, and return None."""
        on_write, left = self._server.on_write, writes

        def count(request: Request, before: Document | None) -> None:
            nonlocal left
            left -= 1
            on_write(request, before)
            if left <= 0:
                self._server.is_down = True
                task.cancel()

        task = asyncio.get_running_loop().create_task(work)
        self._server.on_write = count
        self._server.is_down = writes <= 0
        if writes <= 0:
            task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            self.restart()
            return None
        finally:
            self._server.on_write, self._server.is_down = on_write, False

    def _expectations(self, caches: Iterable[LaggingCache[Any]]) -> Expectations:
        return Expectations(
            {cache.resource: cache.store for cache in caches},
            now=lambda: asyncio.get_running_loop().time(),
            gave_up=lambda: self.counts.update(["gave up"]),
        )

    def _keep(self, key: ObjectKey, outcomes: Sequence[Outcome]) -> None:
        self.actions += [outcome.action for outcome in outcomes if not isinstance(outcome, Skipped | Postponed)]
