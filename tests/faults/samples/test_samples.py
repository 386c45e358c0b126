"""Each scenario and each fault, against the real API server.

A sample runs a scenario twice: without a fault, and with one fault at one place. Both runs must end in the same state,
and the controller must be at rest. The audit log must show no write that a user would not expect.
"""

import asyncio
from pathlib import Path

import pytest
import structlog

from sandbox.audit import read_records
from sandbox.binaries import Binaries
from tests.cluster import running_plane
from tests.controlplane.programs import simulator
from tests.faults.samples.bench import Bench, open_bench
from tests.faults.samples.catalogue import FAULTS, SAMPLES, Sample
from tests.faults.samples.judge import by_namespace, judge
from tests.faults.samples.runner import Result, Run, wrong_with_the_fault
from tests.faults.samples.scenarios import Scenario, scenarios

JOBS = 16


@pytest.mark.cluster
@pytest.mark.timeout(600)
async def test_each_scenario_with_a_fault_ends_as_without_the_fault(
    control_plane_binaries: Binaries, tmp_path: Path
) -> None:
    with (
        running_plane(control_plane_binaries, audit_level="Request") as plane,
        simulator(plane),
        structlog.testing.capture_logs(),
    ):
        async with open_bench(plane, tmp_path) as bench:
            pairs = await run_all(bench)
        requests = by_namespace(read_records(plane.audit_log))
    wrong = [f"{each.name}: {each.wrong}" for pair in pairs for each in pair[1:] if each.wrong]
    for sample, reference, result in pairs:
        wrong += [f"{sample}: {text}" for text in (wrong_with_the_fault(sample, result),) if text]
        ours, wanted = requests[result.namespace], requests[reference.namespace]
        wrong += [f"{sample}: {text}" for text in judge(ours, wanted, counted=not sample.shows_an_old_owner)]
    assert not wrong, "\n\n".join(dict.fromkeys(wrong))


async def run_all(bench: Bench) -> list[tuple[Sample, Result, Result]]:
    """Run all samples, a few at the same time. Return each with the run without a fault and the run with it."""
    places = asyncio.Semaphore(JOBS)
    found: list[tuple[Sample, Result, Result]] = []

    async def run(scenario: Scenario, sample: Sample | None = None, reference: Result | None = None) -> Result:
        async with places:
            return await Run(bench, scenario, sample, reference).go()

    async def run_with_samples(scenario: Scenario) -> None:
        reference = await run(scenario)
        samples = [each for each in SAMPLES if each.scenario == scenario.name]
        results = await asyncio.gather(*(run(scenario, each, reference) for each in samples))
        found.extend((sample, reference, result) for sample, result in zip(samples, results, strict=True))

    async with asyncio.TaskGroup() as group:
        for each in scenarios():
            group.create_task(run_with_samples(each))
    return found


def test_each_fault_and_each_scenario_has_a_sample() -> None:
    assert {each.fault for each in SAMPLES} == set(FAULTS)
    assert {each.scenario for each in SAMPLES} == {each.name for each in scenarios()}
