"""The whole matrix: reference runs, all injections that follow from them, and a summary."""

import asyncio
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from tests.faults.judge.judge import Violation
from tests.faults.matrix.bench import Bench
from tests.faults.matrix.catalogue import Injection, Trace, injections, injections_at, parse_place, sample
from tests.faults.matrix.runner import Reference, Result, Run
from tests.faults.matrix.scenarios import Scenario
from tests.faults.matrix.waves import PROCESS_FAULTS, Wave, controllers_that_ended, scene_of

REFERENCES = 2
"""The default number of reference runs of a scenario. The results of these runs form one reference."""

TRIES = 3
"""The maximum number of runs to inject one fault. The write or event at which the fault begins does not occur in each
run.
"""


class Selection(Struct, frozen=True, kw_only=True):
    """Which injections to run."""

    faults: tuple[str, ...] = ()
    place: str = ""
    sample: int = 0
    seed: int = 1


class Summary(Struct, frozen=True, kw_only=True):
    """The results of a matrix."""

    results: tuple[Result, ...]
    seconds: float
    failures: tuple[str, ...] = ()
    """Runs that could not be judged, for example because of an error in the tests."""

    @property
    def fired(self) -> int:
        return sum(1 for result in self.results if result.injection and result.fired)

    @property
    def unfired(self) -> tuple[Result, ...]:
        return tuple(result for result in self.results if result.injection and not result.fired)

    @property
    def violations(self) -> tuple[tuple[Result, Violation], ...]:
        return tuple((result, violation) for result in self.results for violation in result.violations)

    @property
    def checks(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for result in self.results:
            total.update(result.checks)
        return total


class Matrix:
    """Runs scenarios on a bench, at most `jobs` at a time."""

    def __init__(
        self,
        bench: Bench,
        *,
        jobs: int,
        references: int = REFERENCES,
        progress: Callable[[str], None] = lambda _line: None,
        earlier: Summary | None = None,
    ) -> None:
        """Create a matrix. Its summary contains the results of the summary `earlier`."""
        self.results: list[Result] = list(earlier.results if earlier else ())
        self.failures: list[str] = list(earlier.failures if earlier else ())
        self._bench = bench
        self._references = references
        self._places = asyncio.Semaphore(jobs)
        self._progress = progress
        self._started = time.monotonic() - (earlier.seconds if earlier else 0.0)
        self._total = len(self.results)

    def summary(self) -> Summary:
        return Summary(
            results=tuple(self.results),
            seconds=time.monotonic() - self._started,
            failures=tuple(self.failures),
        )

    async def references(self, scenarios: Iterable[Scenario]) -> dict[str, Reference]:
        """Run each scenario without a fault. A scenario whose runs have a violation has no reference."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                (scenario, [group.create_task(self._reference(scenario)) for _ in range(self._references)])
                for scenario in scenarios
            ]
        found = {}
        for scenario, runs in tasks:
            results = [task.result() for task in runs]
            if good := [result for result in results if result and not result.violations and not result.unready]:
                found[scenario.name] = Reference(
                    tuple(result.end for result in good), tuple(result.trace for result in good)
                )
        return found

    async def run(self, scenarios: Sequence[Scenario], selection: Selection) -> None:
        """Run the reference runs and then all selected injections."""
        references = await self.references(scenarios)
        todo = chosen_from({name: known.traces for name, known in references.items()}, selection)
        by_name = {scenario.name: scenario for scenario in scenarios}
        self._total += len(todo)
        async with asyncio.TaskGroup() as group:
            for injection in todo:
                scenario, reference = by_name[injection.scenario], references[injection.scenario]
                group.create_task(self._injected(scenario, injection, reference))

    async def waves(self, scenarios: Sequence[Scenario], faults: Iterable[str]) -> None:
        """Run the reference runs. Then, for each of these faults of processes, run all scenarios at the same time."""
        references = await self.references(scenarios)
        for fault in faults:
            await self._wave(scenarios, references, fault)

    async def _wave(self, scenarios: Sequence[Scenario], references: Mapping[str, Reference], fault: str) -> None:
        """Run all scenarios with one fault of a process."""
        self._total += len(scenarios)
        async with scene_of(self._bench, PROCESS_FAULTS[fault]) as scene, asyncio.TaskGroup() as group:
            wave = Wave(PROCESS_FAULTS[fault], scene, len(scenarios))
            striking = group.create_task(wave.strike())
            runs = [
                group.create_task(self._attempt(Run(self._bench, scenario, None, references.get(scenario.name), wave)))
                for scenario in scenarios
            ]
            await asyncio.wait(runs)
            striking.cancel()
            self.failures += controllers_that_ended(scene, wave.fault)

    async def _reference(self, scenario: Scenario) -> Result | None:
        self._total += 1
        async with self._places:
            return await self._attempt(Run(self._bench, scenario))

    async def _injected(self, scenario: Scenario, injection: Injection, reference: Reference) -> None:
        for number in range(1, TRIES + 1):
            async with self._places:
                result = await self._attempt(Run(self._bench, scenario, injection, reference), last=number == TRIES)
            if result is None or result.fired:
                return

    async def _attempt(self, run: Run, *, last: bool = True) -> Result | None:
        """Run once. Keep the result if the fault fired, the judge found a violation, or this is the last try."""
        try:
            result = await run.go()
        except Exception:
            self.failures.append(f"{run.name}\n{traceback.format_exc()}")
            return None
        if result.unready:
            self.failures.append(f"{run.name}: {result.unready}")
        if result.injection is None or result.fired or last or result.violations:
            self.results.append(result)
            self._tell()
        return result

    def _tell(self) -> None:
        if len(self.results) % 50 == 0:
            found = sum(len(result.violations) for result in self.results)
            self._progress(f"{len(self.results)} of {self._total} runs, {found} violations")


def chosen_from(traces: Mapping[str, Sequence[Trace]], selection: Selection) -> tuple[Injection, ...]:
    """Return the selected injections in a random order, so that the slow ones are not neighbours.

    `traces` has the traces of the reference runs of each scenario.
    """
    if selection.place:
        place = parse_place(selection.place)
        everything = [each for name in traces for each in injections_at(name, place)]
    else:
        everything = [each for name, known in traces.items() for each in injections(name, known)]
    chosen = [each for each in everything if not selection.faults or each.fault in selection.faults]
    if selection.sample:
        return sample(chosen, selection.sample, selection.seed)
    random.Random(selection.seed).shuffle(chosen)
    return tuple(chosen)


def lines_of(summary: Summary, *, evidence: int = 12) -> list[str]:
    """Return the summary as text: a table, and each violation with its evidence and its command."""
    injected = [result for result in summary.results if result.injection]
    lines = [
        f"{len(summary.results)} runs in {summary.seconds:.0f} s: {len(injected)} with an injection, "
        f"{summary.fired} fired, {len(summary.unfired)} did not fire",
        f"checks: {', '.join(f'{name} {count}' for name, count in sorted(summary.checks.items()))}",
        f"violations: {len(summary.violations)}",
    ]
    by_fault: Counter[tuple[str, bool]] = Counter()
    for result in injected:
        assert result.injection is not None
        by_fault[result.injection.fault, bool(result.fired)] += 1
    for fault in sorted({name for name, _ in by_fault}):
        lines.append(f"  {fault:26} {by_fault[fault, True]:5} fired {by_fault[fault, False]:4} not")
    lines += [f"did not fire: {result.injection}" for result in summary.unfired]
    lines += [f"failed: {each}" for each in summary.failures]
    for result, violation in summary.violations:
        command = result.injection.command if result.injection else f"--scenario {result.scenario} --fault none"
        lines.append(f"VIOLATION {violation.invariant}: {violation.message}\n  {command} ({result.namespace})")
        lines += [f"    {line[:700]}" for line in violation.evidence[:evidence]]
    return lines
