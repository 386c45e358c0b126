"""The command `python -m tests.faults` runs the fault matrix. `make faults` runs all of it.

make faults ARGS="--scenario pool-create --fault crash-before --at create/virtualmachines#2"
"""

import argparse
import asyncio
import fnmatch
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from controller import logs
from sandbox.binaries import find_binaries
from tests.cluster import running_plane
from tests.controlplane.programs import simulator
from tests.faults.matrix.bench import open_bench
from tests.faults.matrix.catalogue import FAULTS, parse_place
from tests.faults.matrix.matrix import Matrix, Selection, Summary, lines_of
from tests.faults.matrix.scenarios import Scenario, scenarios
from tests.faults.matrix.waves import PROCESS_FAULTS

JOBS = 8
NO_FAULTS = ("none",)
"""Selects only the runs without a fault."""


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("tests.faults", description="Run the fault matrix on a control plane of its own.")
    parser.add_argument("--scenario", action="append", default=[], metavar="PATTERN", help="only these scenarios")
    parser.add_argument("--fault", action="append", default=[], metavar="PATTERN", help="only these faults")
    parser.add_argument("--at", default="", metavar="PLACE", help="only this place, such as create/virtualmachines#2")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="about N injections, chosen by the seed")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the choice and of the order")
    parser.add_argument("--list", action="store_true", help="print the scenarios and the faults")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write all results as JSON")
    parser.add_argument("--evidence", type=Path, metavar="DIR", help="write the history of each run with a violation")
    parser.add_argument("--log", type=Path, metavar="FILE", help="write the controllers' log lines")
    chosen = parser.parse_args(argv)
    if chosen.at:
        parse_place(chosen.at)
    return chosen


def matching(names: Sequence[str], patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the names that match one of the patterns, or all names without a pattern.

    Raises SystemExit if no name matches.
    """
    found = tuple(name for name in names if not patterns or any(fnmatch.fnmatch(name, each) for each in patterns))
    if not found:
        sys.exit(f"nothing matches {' '.join(patterns)}; --list prints all names")
    return found


async def run(
    chosen: argparse.Namespace, todo: Sequence[Scenario], selection: Selection, waves: Sequence[str]
) -> Summary:
    """Run the injections of writes and watches on one control plane, and the faults of processes on another one."""
    summary = Summary(results=(), seconds=0.0)
    stages: list[Callable[[Matrix], Awaitable[None]]] = []
    if selection.faults != NO_FAULTS or not waves:
        stages.append(lambda matrix: matrix.run(todo, selection))
    if waves:
        stages.append(lambda matrix: matrix.waves(todo, waves))
    for stage in stages:
        summary, completed = await _on_a_new_plane(chosen, stage, summary)
        if not completed:
            break
    return summary


async def _on_a_new_plane(
    chosen: argparse.Namespace, stage: Callable[[Matrix], Awaitable[None]], earlier: Summary
) -> tuple[Summary, bool]:
    """Run a stage. Return the summary so far, and False if a signal ended the stage."""
    with (
        running_plane(find_binaries(), audit_level="RequestResponse") as plane,
        simulator(plane),
        tempfile.TemporaryDirectory(prefix="vmherd-faults-") as directory,
    ):
        async with open_bench(plane, Path(directory), chosen.evidence) as bench:
            matrix = Matrix(bench, jobs=JOBS, progress=_tell, earlier=earlier)
            running = asyncio.ensure_future(stage(matrix))
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, running.cancel)
            await asyncio.wait([running])
            if not running.cancelled() and (error := running.exception()):
                matrix.failures.append("".join(traceback.format_exception(error)))
            return matrix.summary(), not running.cancelled()


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    chosen = arguments(sys.argv[1:] if argv is None else argv)
    every = scenarios()
    if chosen.list:
        print("\n".join([*(scenario.name for scenario in every), "", *FAULTS, *PROCESS_FAULTS]))
        return 0
    names = matching([scenario.name for scenario in every], chosen.scenario)
    faults = () if chosen.fault == ["none"] else matching((*FAULTS, *PROCESS_FAULTS), chosen.fault)
    waves = () if chosen.sample or chosen.at else [each for each in faults if each in PROCESS_FAULTS]
    selection = Selection(
        faults=tuple(each for each in faults if each in FAULTS) or NO_FAULTS,
        place=chosen.at,
        sample=chosen.sample,
        seed=chosen.seed,
    )
    todo = [each for each in every if each.name in names]
    with (chosen.log or Path(os.devnull)).open("w") as log:
        logs.configure("info" if chosen.log else "error", "json", stream=log)
        summary = asyncio.run(run(chosen, todo, selection, waves))
    print("\n".join(lines_of(summary)))
    if chosen.report:
        chosen.report.write_bytes(msgspec.json.encode(summary))
    return 1 if summary.violations or summary.failures else 0


if __name__ == "__main__":
    sys.exit(main())
