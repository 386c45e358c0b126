"""The workers of a kind. A worker takes a key from the queue, reconciles its object, and decides when it does so again.

An unexpected exception is logged and counted, and the key is retried with backoff. After a failure of the API server,
the backoff of the key does not grow (see `Outage`).

Each reconciliation writes one log line: warning after a failure, info if there were actions, and debug otherwise, also
for a conflict with another writer, and for the same failure within a minute. An unexpected exception has its traceback
if the last pass of the key failed in another way.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol, assert_never

import structlog
from structlog.contextvars import bound_contextvars

from controller.runtime.actions import Notice
from controller.runtime.result import After, AwaitChange, Reconciler, Report, Retry, retry_after
from controller.runtime.workers.loop_share import USAGE, LoopShare, Usage
from controller.runtime.workers.outage import Outage
from informers.errors import ApiError
from informers.http.fairness import FLOW
from informers.meta import ObjectKey
from informers.workqueue import QueueKeys, WorkQueue

log = structlog.get_logger()

SHORTEST_DELAY_S = 0.05
RECENT = 5
SAME_FAILURE_S = 60.0


class ReconcileInstruments(Protocol):
    def workers(self, controller: str, *, most: int) -> None: ...

    def worker_busy(self, controller: str, *, change: int) -> None: ...

    def reconciled(self, controller: str, *, result: str, seconds: float) -> None: ...

    def panicked(self, controller: str) -> None: ...


class Controller:
    def __init__(
        self,
        name: str,
        queue: WorkQueue[ObjectKey],
        reconciler: Reconciler,
        *,
        workers: int,
        instruments: ReconcileInstruments,
        share: LoopShare | None = None,
        publish: Callable[[ObjectKey, Notice], None] = lambda _key, _notice: None,
    ) -> None:
        """`share` limits the time of each namespace on the event loop, for all kinds. `publish` sends an Event."""
        self.name = name
        self.queue = queue
        self._reconciler = reconciler
        self._outage = Outage(queue)
        self._share = share or LoopShare(lambda: 0.0, lambda: 0.0)
        self._publish = publish
        self._workers = workers
        self._instruments = instruments
        self.recent: dict[ObjectKey, None] = {}
        """The keys that were reconciled last, the newest at the end."""

        self._passes = 0
        self._failed: dict[ObjectKey, tuple[Mapping[str, object], float]] = {}
        """For each key whose last pass failed: the facts of the pass, and when they were last in the log."""
        instruments.workers(name, most=workers)

    def keys(self, now: float) -> QueueKeys[ObjectKey]:
        """Return the keys of the queue. The delayed keys include the keys that wait for the end of an outage."""
        keys = self.queue.keys(now)
        return keys._replace(delayed={**self._outage.delayed(now), **keys.delayed})

    async def run(self) -> None:
        """Reconcile keys until the queue is shut down. Then wait until the running reconciliations have finished."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(group), name=f"{self.name}-worker-{number}")

    async def _work(self, group: asyncio.TaskGroup) -> None:
        async for key in self.queue:
            usage = Usage(self._share, self.name, key)
            wait_s = self._share.wait_s(usage)
            if wait_s > 0:
                self.queue.add_after(key, wait_s)
                self.queue.done(key)
            elif self._share.enter_lane(usage):
                group.create_task(self._attempt(key, usage), name=f"{self.name}-quarantine")
            else:
                await self._attempt(key, usage)

    async def _attempt(self, key: ObjectKey, usage: Usage) -> None:
        self._passes += 1
        self.recent.pop(key, None)
        self.recent[key] = None
        if len(self.recent) > RECENT:
            del self.recent[next(iter(self.recent))]
        self._instruments.worker_busy(self.name, change=+1)
        started = asyncio.get_running_loop().time()
        FLOW.set((key.namespace, f"{self.name}/{key.name}"))
        USAGE.set(usage)
        with bound_contextvars(
            controller=self.name, namespace=key.namespace, name=key.name, reconcile_id=f"{self._passes:x}"
        ):
            try:
                report = await usage.measured(self._reconciler.reconcile(key), counts=True)
            except ApiError as error:
                report = Report(retry_after(error), {"failure": str(error)})
            except Exception as error:
                report = Report(Retry(repr(error)), {"unexpected": repr(error)})
                is_new = key not in self._failed or self._failed[key][0] != report.facts
                (log.exception if is_new else log.debug)("reconcile failed")
                self._instruments.panicked(self.name)
            finally:
                self._instruments.worker_busy(self.name, change=-1)
                self.queue.done(key)
            seconds = asyncio.get_running_loop().time() - started
            self._requeue(key, report, seconds)
            if wait_s := self._share.spend(usage):
                self.queue.add_after(key, wait_s)
            if usage.is_slow:
                took = f"its reconciliation kept the controller busy for {usage.longest_s:.1f} s without a pause"
                self._publish(key, Notice(reason="Quarantined", message=f"{took}, so the next one is in {wait_s:g} s"))

    def _requeue(self, key: ObjectKey, report: Report, seconds: float) -> None:
        if not isinstance(report.result, Retry) or not report.result.outage:
            self._outage.end(key, served=bool(report.facts.keys() - {"unexpected"}))
        match report.result:
            case AwaitChange():
                result, again = "success", None
                self.queue.forget(key)
            case After(seconds=delay):
                result, again = "requeue_after", delay
                self.queue.forget(key)
                self.queue.add_after(key, delay)
            case Retry(not_before_s=floor, outage=True):
                result = "error"
                again = self._outage.wait(key, at_least_s=floor)
            case Retry(not_before_s=floor, lost_race=lost_race, also_after_s=delay_s):
                result = "requeue" if lost_race else "error"
                again = self.queue.add_rate_limited(key, at_least_s=floor)
                if delay_s is not None and max(floor, SHORTEST_DELAY_S) <= delay_s < again:
                    again = delay_s
                    self.queue.add_after(key, delay_s)
            case _:
                assert_never(report.result)
        self._instruments.reconciled(self.name, result=result, seconds=seconds)
        write_log = log.warning if result == "error" else log.info if report.facts else log.debug
        write_log = log.debug if self._is_known(key, report.facts) else write_log
        write_log("reconciled", **{**report.facts, "result": result, "seconds": round(seconds, 4), "again_s": again})

    def _is_known(self, key: ObjectKey, facts: Mapping[str, object]) -> bool:
        """Return True if the last pass failed in the same way, wrote nothing, and its line in the log is recent."""
        now = asyncio.get_running_loop().time()
        told, at = self._failed.pop(key, ({}, now))
        if not facts.keys() & {"failure", "unexpected"} or "wrote" in facts:
            return False
        is_known = told == facts and now - at < SAME_FAILURE_S
        self._failed[key] = (facts, at if is_known else now)
        return is_known
