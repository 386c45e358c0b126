"""Runs cases, and reads and writes their results as JSON."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct, json

from benchmarks.case import Case, Report, Result, Setting
from benchmarks.conditions import watch_machine


class Options(Struct, frozen=True):
    """What to run. Without `sizes`, each case runs with its own sizes."""

    rounds: int = 3
    sizes: tuple[int, ...] = ()
    against: str = ""
    quick: bool = False


def run(case: Case, options: Options, *, tell: Callable[[str], None] = print) -> list[Result]:
    """Run all rounds of a case. Each round has its own directory and its own control plane."""
    return [_run_size(case, size, options, tell) for size in options.sizes or case.sizes]


def _run_size(case: Case, size: int, options: Options, tell: Callable[[str], None]) -> Result:
    result = Result(case.name, size, command_of(case, size, options), options.against or "vmherd")
    for number in range(options.rounds):
        tell(f"{case.name} {size}: round {number + 1} of {options.rounds}")
        with tempfile.TemporaryDirectory(prefix="vmherd-bench-") as directory:
            describe = watch_machine()
            setting = Setting(size, Path(directory), options.against, options.quick)
            result.rounds.append(case.run(setting))
            result.conditions.append(describe())
    return result


def command_of(case: Case, size: int, options: Options) -> str:
    """Return the command that repeats the measurement."""
    words = [case.name]
    if case.unit_of_size:
        words.append(f"--sizes {size}")
    words.append(f"--rounds {options.rounds}")
    if options.quick:
        words.append("--quick")
    if options.against:
        words.append(f"--against '{options.against}'")
    return f'make bench ARGS="{" ".join(words)}"'


def read(path: Path) -> Report:
    """Return the results in a file, or no results if the file does not exist."""
    return json.decode(path.read_bytes(), type=Report) if path.exists() else Report()


def write(report: Report, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(json.format(json.encode(report), indent=1) + b"\n")
