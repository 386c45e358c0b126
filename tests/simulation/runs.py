"""Runs lives by their seeds, in batches that a process can run alone. The processes end with their parent."""

import os
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait

from msgspec import Struct

from tests.simulation.coverage import Coverage
from tests.simulation.judge import Violation, judged
from tests.simulation.life import run_life
from tests.simulation.story import make_story
from tests.simulation.twins import EVERY, NAME, same_end
from tests.simulation.world import configure_logs

BATCH = 5


class Report(Struct):
    coverage: Coverage
    found: list[tuple[int, Violation]]
    cpu_s: float


def run_seed(seed: int, coverage: Coverage) -> list[Violation]:
    """Run the life of a seed and judge it. An error of the simulation itself is a violation, too."""
    try:
        life = run_life(make_story(seed))
        found, spoken = judged(life)
        coverage.add(life, spoken)
        if seed % EVERY == 0 and (ends := same_end(seed)) is not None:
            coverage.sentences[NAME] += 1
            found += ends
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return [Violation("no_error_is_unexpected", 0.0, "", f"{error!r} in {where.name} of {where.filename}")]
    return found


def run_batch(seeds: range) -> Report:
    configure_logs()
    started, coverage = time.process_time(), Coverage()
    found = [(seed, violation) for seed in seeds for violation in run_seed(seed, coverage)]
    return Report(coverage, found, time.process_time() - started)


def batches(first: int, number: int) -> Iterator[range]:
    for start in range(first, first + number, BATCH):
        yield range(start, min(start + BATCH, first + number))


def workers(number: int) -> ProcessPoolExecutor:
    """Return a pool of worker processes. They end when this process ends, also if it is killed."""
    return ProcessPoolExecutor(number, get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent").start()
