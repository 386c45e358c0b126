"""The part of the fault matrix that every change must pass. `make faults` runs all of it."""

from pathlib import Path

import pytest
import structlog

from sandbox.binaries import Binaries
from tests.cluster import running_plane
from tests.controlplane.programs import simulator
from tests.faults.matrix.bench import Bench, open_bench
from tests.faults.matrix.matrix import Matrix, Selection, Summary, lines_of
from tests.faults.matrix.scenarios import scenarios

SEED = 1
INJECTIONS = 60
JOBS = 8


@pytest.mark.e2e
@pytest.mark.timeout(600)
async def test_a_seeded_part_of_the_matrix_has_no_violation(control_plane_binaries: Binaries, tmp_path: Path) -> None:
    with (
        running_plane(control_plane_binaries, audit_level="RequestResponse") as plane,
        simulator(plane),
        structlog.testing.capture_logs(),
    ):
        async with open_bench(plane, tmp_path) as bench:
            summary = await part_of_the_matrix(bench)
    told = "\n".join(lines_of(summary))
    assert not summary.violations, told
    assert not summary.failures, told
    assert summary.fired >= 0.9 * INJECTIONS, told
    never = {"S1", "S2", "S4", "S7", "L1", "L2", "Q1"} - {name for name, count in summary.checks.items() if count}
    assert not never, told


async def part_of_the_matrix(bench: Bench) -> Summary:
    matrix = Matrix(bench, jobs=JOBS, references=1)
    await matrix.run(scenarios(), Selection(sample=INJECTIONS, seed=SEED))
    return matrix.summary()
