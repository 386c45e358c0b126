"""Runs lives by their seeds, in batches that a process can run alone."""

import time
from collections.abc import Iterator

from msgspec import Struct

from tests.simulation.coverage import Coverage
from tests.simulation.judge import Violation, judged
from tests.simulation.life import run_life
from tests.simulation.loop import HotLoop
from tests.simulation.story import make_story
from tests.simulation.twins import EVERY, NAME, same_end
from tests.simulation.world import configure_logs

BATCH = 5


class Report(Struct):
    coverage: Coverage
    found: list[tuple[int, Violation]]
    cpu_s: float


def run_seed(seed: int, coverage: Coverage) -> list[Violation]:
    """Run the life of a seed and judge it."""
    try:
        life = run_life(make_story(seed))
    except HotLoop as error:
        return [Violation("no_error_is_unexpected", 0.0, "", str(error))]
    found, spoken = judged(life)
    coverage.add(life, spoken)
    if seed % EVERY == 0:
        coverage.sentences[NAME] += 1
        found += same_end(seed)
    return found


def run_batch(seeds: range) -> Report:
    configure_logs()
    started, coverage = time.process_time(), Coverage()
    found = [(seed, violation) for seed in seeds for violation in run_seed(seed, coverage)]
    return Report(coverage, found, time.process_time() - started)


def batches(first: int, number: int) -> Iterator[range]:
    for start in range(first, first + number, BATCH):
        yield range(start, min(start + BATCH, first + number))
