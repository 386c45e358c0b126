"""Runs one scenario, with a sample of a fault or without a fault."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

import structlog
from msgspec import Struct

from tests.faults.proxy.actions import CrashAfter, CrashBefore, CutAnswer, Hang, LoseAnswer, Mark, Refuse, Reset
from tests.faults.proxy.proxy import Decision
from tests.faults.proxy.requests import WRITES
from tests.faults.samples.bench import Bench, new_namespace
from tests.faults.samples.catalogue import FAULTS, Fault, Sample
from tests.faults.samples.herd import Herd
from tests.faults.samples.objects import Objects, differences, end_state
from tests.faults.samples.scenarios import Scenario
from tests.faults.samples.view import User

WITHIN_S = 60.0
"""The longest time for a step. Retries after errors have delays of a few seconds."""

QUIET_LOOKS, LOOK_S = 17, 0.05
"""At rest, nothing happens for this number of looks. `LOOK_S` is the time between two looks.

All runs share one event loop, which may stand still for a second. So the looks count, and not the time: between two
looks, each task of the loop gets a turn.
"""

QUIET_WITHIN_S = 20.0
NO_FAULT = Fault(actions=(), recovers_s=0.0)


class Wrong(Exception):
    """What a run found, in words."""


class Result(Struct, frozen=True, kw_only=True):
    """What the judge needs of a run. `wrong` is "" if the end state is right and nothing happens at rest."""

    name: str
    namespace: str
    end: Mapping[str, list[str]]
    fired: tuple[Decision, ...]
    wrong: str


class Run:
    """One run of a scenario. With a sample, the end state must be that of `reference`, the run without a fault."""

    def __init__(
        self, bench: Bench, scenario: Scenario, sample: Sample | None = None, reference: Result | None = None
    ) -> None:
        self._bench = bench
        self._scenario = scenario
        self._sample = sample
        self._fault = FAULTS[sample.fault] if sample else NO_FAULT
        self._reference = reference
        self._namespace = new_namespace()
        self._user = User(bench.view, self._namespace)
        self._herd = Herd(bench, self._namespace)

    async def go(self) -> Result:
        structlog.contextvars.bind_contextvars(run=self._namespace)
        version, wrong = await self._user.create_namespace(), ""
        try:
            await self._herd.start()
            try:
                await self._prepare()
                await self._act(version)
            finally:
                await self._herd.stop()
            if self._herd.ended:
                wrong = f"the controller ended, or did not stop: {self._herd.ended}"
        except Wrong as found:
            wrong = str(found)
        return Result(
            name=str(self._sample or self._scenario.name),
            namespace=self._namespace,
            end=end_state(self._user.objects),
            fired=tuple(self._herd.fired),
            wrong=wrong,
        )

    async def _prepare(self) -> None:
        """Bring the given objects to rest."""
        for plural, body in self._scenario.given:
            await self._user.create(plural, body)
        await self._until(self._scenario.ready, "the given objects are not ready")
        await self._quiet(self._scenario.ready)

    async def _act(self, version: str) -> None:
        rules = self._herd.arm(*(self._sample.rules(version) if self._sample else ()))
        releasing = asyncio.create_task(self._release(rules))
        try:
            for number, step in enumerate(self._scenario.steps, 1):
                await step.act(self._user)
                await self._until(step.until, f"step {number} does not reach its condition")
            await self._until(self._is_at_the_end, "the end state is not that of the run without the fault")
            await self._quiet(self._is_at_the_end)
        finally:
            releasing.cancel()

    def _is_at_the_end(self, objects: Objects) -> bool:
        same = self._reference is None or end_state(objects) == self._reference.end
        return same and self._scenario.steps[-1].until(objects)

    async def _until(self, holds: Callable[[Objects], bool], otherwise: str) -> None:
        """Wait until a condition holds. Raises Wrong if this takes too long."""
        reached = await self._bench.view.until(
            self._namespace, lambda objects: bool(self._herd.ended) or holds(objects), within_s=WITHIN_S
        )
        if not reached or self._herd.ended:
            raise self._wrong(otherwise)

    def _wrong(self, text: str) -> Wrong:
        end = self._reference.end if self._reference else {}
        found = list(differences(end, end_state(self._user.objects)))
        writes = [
            f"{each.verb} {each.path} {each.action} -> {each.code}"
            for each in self._herd.decisions()
            if each.verb in WRITES
        ][-25:]
        return Wrong("\n".join([text, *self._herd.ended, *found, *writes]))

    async def _quiet(self, holds: Callable[[Objects], bool]) -> None:
        """Wait until the condition holds at rest: for a while, nothing changes and the controller sends no request."""
        loop = asyncio.get_running_loop()
        began = time.time()
        looks = requests = 0
        looked_at = 0.0
        while time.time() < max(began, min(self._recovered_at(), began + WITHIN_S)) + QUIET_WITHIN_S:
            await asyncio.sleep(LOOK_S)
            before, requests = requests, self._herd.requests()
            busy = requests != before or self._bench.view.changed_at(self._namespace) > looked_at
            looked_at = loop.time()
            looks = 0 if busy else looks + 1
            if looks >= QUIET_LOOKS and time.time() >= self._recovered_at() and holds(self._user.objects):
                return
        raise self._wrong("the controller does not come to rest")

    def _recovered_at(self) -> float:
        """Return the time at which the controller has recovered from the last fault, in seconds since 1970.

        Before that time, a request may wait for its retry, and a new controller may still read its first lists.
        """
        fired = max((each.time for each in self._herd.fired), default=0.0)
        if self._herd.crashes:
            fired = max(fired, self._herd.works_since())
        return fired + self._fault.recovers_s

    async def _release(self, rules: tuple[int, ...]) -> None:
        """If the fault goes on until it is ended, end it."""
        if self._fault.released_after_s:
            while not self._herd.fired:
                await asyncio.sleep(0.05)
            await asyncio.sleep(self._fault.released_after_s)
            await self._herd.disarm(rules)


REACHES: Final = LoseAnswer | CutAnswer | CrashAfter
STOPS: Final = Refuse | Reset | Hang | CrashBefore


def wrong_with_the_fault(sample: Sample, result: Result) -> str:
    """Say whether the fault did not happen, whether it let the server have a request or kept a request from the server
    against its kind, or whether a delete hit an object that a user marked before it arrived.
    """
    if not result.fired:
        return "the fault did not happen"
    first, acted = FAULTS[sample.fault].actions[0], result.fired[0]
    if isinstance(first, STOPS if acted.server_code else REACHES):
        return f"the status of the server's answer to the request with the fault is {acted.server_code}"
    is_hit = isinstance(first, Mark) and acted.code != 409
    return f"the delete of an object that was marked before was answered with {acted.code}" if is_hit else ""
