"""Runs one scenario with one injection, and judges the run."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping

import structlog
from msgspec import Struct

from tests.faults.judge.chronicle import chronicle
from tests.faults.judge.history import History
from tests.faults.judge.judge import Answer, Interval, Violation, all_invariants, examine
from tests.faults.judge.judge import Run as JudgedRun
from tests.faults.matrix.bench import Bench, new_namespace
from tests.faults.matrix.catalogue import FAULTS, Injection, Trace, numbered
from tests.faults.matrix.herd import Herd
from tests.faults.matrix.objects import Objects, differences, end_state, without_left_over_disks
from tests.faults.matrix.scenarios import Scenario
from tests.faults.matrix.view import User
from tests.faults.matrix.waves import Wave
from tests.faults.proxy.actions import Refuse

READY_WITHIN_S = 60.0
SETTLED_WITHIN_S = 90.0
"""The longest time for a step. Retries after errors have delays of a few seconds."""

AFTERMATH_S = 15.0
"""The time after a fault of a process until all watches and retries are as usual."""

RECOVERED_S = 18.0
"""The time after a fault of a process until all Events are sent. The last retry of an Event waits 16 seconds."""

STRUCK_WITHIN_S = 120.0
"""The longest time until a fault of a process is over. A run does not rest before."""

AFTER_A_RESTORE = ("L1", "L2", "Q1", "S6")
"""The invariants that are checked after a restore. A restore removes objects and changes. The other invariants do not
expect this removal.
"""

ABOUT_EACH_CHANGE = {"H0", "S11"}
"""The invariants that can be checked only if every change and its author are known."""

QUIET_LOOKS, LOOK_S = 17, 0.05
"""At rest, nothing happens for this number of looks. `LOOK_S` is the time between two looks.

All runs share one event loop, which may stand still for a second. So the looks count, and not the time: between two
looks, each task of the loop gets a turn.
"""

QUIET_WITHIN_S = 20.0


class Result(Struct, frozen=True, kw_only=True):
    """The result of one run. `unready` says why the run could not begin."""

    scenario: str
    injection: Injection | None
    namespace: str
    fired: int = 0
    crashes: int = 0
    seconds: float = 0.0
    checks: Mapping[str, int] = {}
    """The number of checks of each invariant."""

    violations: tuple[Violation, ...] = ()
    unready: str = ""
    trace: Trace = Trace((), ())
    end: Mapping[str, list[str]] = {}


class Reference(Struct, frozen=True):
    """The results of a scenario's runs without faults: the end states, and the traces that show where faults fit."""

    ends: tuple[Mapping[str, list[str]], ...]
    traces: tuple[Trace, ...]


class Run:
    """One run of a scenario."""

    def __init__(
        self,
        bench: Bench,
        scenario: Scenario,
        injection: Injection | None = None,
        reference: Reference | None = None,
        wave: Wave | None = None,
    ) -> None:
        self._bench = bench
        self._scenario = scenario
        self._injection = injection or (wave.injection(scenario.name) if wave else None)
        self._wave = wave
        self._reference = reference
        self._fault = FAULTS.get(self._injection.fault) if self._injection else None
        self._namespace = new_namespace()
        self._user = User(bench.view, self._namespace, patient=wave is not None)
        self._herd = (wave.herd if wave else Herd)(bench, self._namespace)
        self._version = ""
        self._violations: list[Violation] = []
        self._rest: Interval | None = None
        self._acting = False

    @property
    def name(self) -> str:
        return self._injection.command if self._injection else f"{self._scenario.name} without a fault"

    async def go(self) -> Result:
        """Run the scenario. The result has the findings; an exception means that the run itself failed."""
        structlog.contextvars.bind_contextvars(run=self._namespace)
        started = time.monotonic()
        self._version = await self._user.create_namespace()
        try:
            unready = await self._prepare()
            if self._wave:
                await self._wave.prepared(ready=not unready)
            trace = Trace((), ()) if unready else await self._act()
            await self._herd.stop()
            if self._herd.ended and not self._violations:
                self._violation("L1", "the controller ended, or did not stop", *self._herd.ended)
            end = end_state(self._user.objects)
            checks = {} if unready else await self._judge()
            return Result(
                scenario=self._scenario.name,
                injection=self._injection,
                namespace=self._namespace,
                fired=self._herd.fired,
                crashes=self._herd.crashes,
                seconds=time.monotonic() - started,
                checks=checks,
                violations=tuple(self._violations),
                unready=unready,
                trace=trace,
                end=end,
            )
        finally:
            # The namespace stays: its deletion would cost the server more than the run.
            await self._herd.stop()
            self._bench.view.forget(self._namespace)
            self._bench.observer.forget(self._namespace)

    async def _prepare(self) -> str:
        """Bring the given objects to rest. Return what is missing if that takes too long."""
        await self._herd.start()
        for plural, body in self._scenario.given:
            await self._user.create(plural, body)
        ready = await self._until(self._scenario.ready, READY_WITHIN_S) and await self._quiet(self._scenario.ready)
        self._rest = None
        return "" if ready else f"the given objects do not come to rest: {self._user.objects.counts()}"

    async def _act(self) -> Trace:
        self._acting = True
        before = self._bench.view.events(self._namespace)
        rules = self._herd.arm(*(self._injection.rules(self._version) if self._injection else ()))
        releasing = asyncio.create_task(self._release(rules))
        try:
            for number, step in enumerate(self._scenario.steps, 1):
                await step.act(self._user)
                if self._wave and number == 1:
                    await self._wave.acted()
                    if self._wave.fault.loses_acts:
                        await step.act(self._user)
                if not await self._until(step.until, SETTLED_WITHIN_S):
                    self._stuck(f"step {number} does not reach its condition")
                    break
            else:
                await self._end()
        finally:
            releasing.cancel()
        events = self._bench.view.events(self._namespace) - before
        watched = self._herd.watched()
        return Trace(
            numbered((each.verb, each.request.resource, each.request.subresource) for each in self._herd.writes()),
            tuple(sorted((resource, count) for resource, count in events.items() if resource in watched)),
        )

    async def _end(self) -> None:
        """Wait until the controller is at rest. If there is a reference, also wait until the end state is that of a
        reference run.
        """
        if self._reference is None:
            if not await self._quiet(self._scenario.settled):
                self._violation("Q1", "the controller does not come to rest")
            return

        def at_the_end(objects: Objects) -> bool:
            same = not self._scenario.compared or any(self._equals(end, objects) for end in self._reference.ends)
            return same and self._scenario.settled(objects)

        if not await self._until(at_the_end, SETTLED_WITHIN_S):
            found = differences(self._reference.ends[0], end_state(self._user.objects))
            self._violation("L1", "the end state differs from that of a run without the fault", *found)
        elif not await self._quiet(at_the_end):
            found = differences(self._reference.ends[0], end_state(self._user.objects))
            self._violation("Q1", "the namespace does not stay at rest", *found, *self._last_writes())

    def _equals(self, reference: Mapping[str, list[str]], objects: Objects) -> bool:
        """Compare the objects with an end state of a reference run.

        After a restore of etcd, a pool may create VMs in place of VMs that the restore brings back. The pool deletes
        the new VMs again, and their kept disks stay. So further disks without a VM are allowed.
        """
        found = end_state(objects)
        if self._wave and self._wave.fault.loses_acts:
            found = without_left_over_disks(reference, found)
        return found == reference

    async def _judge(self) -> Counter[str]:
        """Check the invariants over the API server's history. Return the number of checks of each invariant."""
        history = await self._history()
        fault = self._fault
        fired = [each.time for each in self._herd.decisions() if each.rule]
        intervals = [Interval(start, start + fault.lasts_s) for start in fired] if fault else []
        if self._wave:
            intervals.append(Interval(self._wave.started, self._wave.ended + AFTERMATH_S))
        verdict = examine(
            history,
            JudgedRun(
                reaction_s=SETTLED_WITHIN_S,
                faults=tuple(intervals),
                settled_from=self._rest.start if self._rest else None,
                ended=self._rest.end if self._rest else None,
                answers=tuple(self._answers()),
                refused=(Interval(min(fired), max(fired)),) if fired and fault and fault.refuses else (),
                lost_answers=len(fired) if fault and fault.loses else 0,
                crashes=self._herd.crashes,
            ),
            only=self._invariants(),
        )
        self._violations += verdict.violations
        if self._violations and self._bench.evidence:
            self._bench.evidence.mkdir(parents=True, exist_ok=True)
            lines = chronicle(history, self._herd.decisions())
            found = [f"{each.invariant}: {each.message}" for each in self._violations]
            (self._bench.evidence / f"{self._namespace}.txt").write_text("\n".join([self.name, *found, *lines]))
        return Counter(verdict.checks)

    async def _history(self) -> History:
        if self._wave and self._wave.fault.loses_acts:
            return await self._bench.observer.end(self._namespace, self._rest.start if self._rest else time.time())
        return await self._bench.observer.history(self._namespace)

    def _invariants(self) -> Collection[str]:
        """Return the invariants to check; () means all. A proxy that says that a name exists accepts each successor."""
        if self._injection and self._injection.fault == "409-exists":
            return all_invariants() - {"S13"}
        if self._wave is None or not self._wave.fault.hides:
            return ()
        if self._wave.fault.loses_acts:
            return AFTER_A_RESTORE
        return all_invariants() - ABOUT_EACH_CHANGE

    def _answers(self) -> Iterator[Answer]:
        fault = self._fault
        first = fault.actions[0] if fault else None
        demanded = float(first.retry_after) if isinstance(first, Refuse) and first.retry_after else None
        for each in self._herd.decisions():
            # The path of a create names no object, so the judge cannot tell a retry from another create.
            demands = each.rule and each.verb != "create"
            if each.code:
                yield Answer(each.time, each.verb, each.path, each.code, demanded if demands else None)

    async def _until(self, holds: Callable[[Objects], bool], within_s: float) -> bool:
        reached = await self._bench.view.until(
            self._namespace, lambda objects: bool(self._herd.ended) or holds(objects), within_s=within_s
        )
        if self._herd.ended:
            self._violation("L1", "the controller ended", *self._herd.ended)
            return False
        return reached

    async def _quiet(self, holds: Callable[[Objects], bool]) -> bool:
        """Wait until the condition holds at rest: for a while, nothing changes and the controller sends no request."""
        loop = asyncio.get_running_loop()
        began = time.time()
        looks: list[float] = []
        requests, looked_at = -1, 0.0
        while time.time() < max(began, min(self._recovered_at(), began + STRUCK_WITHIN_S)) + QUIET_WITHIN_S:
            await asyncio.sleep(LOOK_S)
            before, requests = requests, self._requests()
            busy = requests != before or self._bench.view.changed_at(self._namespace) > looked_at
            looked_at = loop.time()
            looks = [time.time()] if busy else [*looks, time.time()]
            if len(looks) >= QUIET_LOOKS and time.time() >= self._recovered_at() and holds(self._user.objects):
                # The server gets a request a little later than the proxy. So the second half of the time counts.
                self._rest = Interval(looks[len(looks) // 2], time.time())
                return True
        return False

    def _requests(self) -> int:
        """Return the number of requests so far. The controllers of a wave have no proxy, so the audit log tells it."""
        return self._bench.observer.requests(self._namespace) if self._wave else self._herd.requests()

    def _recovered_at(self) -> float:
        """Return the time at which the controller has recovered from the last fault, in seconds since 1970.

        Before that time, a request may wait for its retry, and a new controller may still read its first lists.
        """
        if self._wave and self._acting:
            return self._wave.ended + RECOVERED_S if self._wave.ended else float("inf")
        fault = self._fault
        fired = max((each.time for each in self._herd.decisions() if each.rule), default=0.0)
        if self._herd.crashes:
            fired = max(fired, self._herd.works_since())
        return fired + (fault.recovers_s if fault else 0.0)

    async def _release(self, rules: tuple[int, ...]) -> None:
        """If the fault goes on until it is ended, end it."""
        fault = self._fault
        if fault is None or not fault.released_after_s:
            return
        while not self._herd.fired:
            await asyncio.sleep(0.05)
        await asyncio.sleep(fault.released_after_s)
        await self._herd.disarm(rules)

    def _stuck(self, message: str) -> None:
        if self._violations:
            return
        objects = self._user.objects
        states = [
            f"{plural} {name}: deleted={item['metadata'].get('deletionTimestamp', '')} status={item.get('status')}"
            for plural, items in objects.by_resource.items()
            for name, item in items.items()
        ]
        self._violation("L1", message, *states, *self._last_writes())

    def _last_writes(self) -> list[str]:
        return [f"{each.verb} {each.path} {each.action} -> {each.code}" for each in self._herd.writes()[-25:]]

    def _violation(self, invariant: str, message: str, *evidence: str) -> None:
        self._violations.append(Violation(invariant, message, evidence))
