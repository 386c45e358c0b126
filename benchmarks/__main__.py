"""`python -m benchmarks`: run benchmark cases, print tables in Markdown, and write figures.json."""

import argparse
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from benchmarks import figures
from benchmarks.case import Case, Conditions, Result, Setting
from benchmarks.cases import CASES
from benchmarks.controllers import cpu_of_machine_s, cpu_s
from benchmarks.figures import table

ROOT = Path(__file__).resolve().parents[1]


class Options(Struct, frozen=True):
    rounds: int = 3
    sizes: tuple[int, ...] = ()
    against: str = ""
    quick: bool = False


def run(case: Case, options: Options, *, tell: Callable[[str], None] = print) -> list[Result]:
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
    words = [case.name, f"--sizes {size}", f"--rounds {options.rounds}"]
    if options.quick:
        words.append("--quick")
    if options.against:
        words.append(f"--against '{options.against}'")
    return f'make bench ARGS="{" ".join(words)}"'


def watch_machine() -> Callable[[], Conditions]:
    started, machine_s, own_s = time.monotonic(), cpu_of_machine_s(), cpu_s(os.getpid())
    cores = os.cpu_count() or 1

    def describe() -> Conditions:
        available_s = (time.monotonic() - started) * cores
        others_s = (cpu_of_machine_s() - machine_s) - (cpu_s(os.getpid()) - own_s)
        return Conditions(
            date=datetime.now(UTC).strftime("%Y-%m-%d"),
            cores=cores,
            python=platform.python_version(),
            revision=_revision(),
            others=round(min(1.0, max(0.0, others_s / available_s)), 3) if available_s else 0.0,
        )

    return describe


def _revision() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def main() -> None:
    given = _arguments()
    chosen = [CASES[name] for name in given.cases] or [
        each for each in CASES.values() if given.against == "" or each.black_box
    ]
    options = Options(given.rounds, given.sizes, given.against, given.quick)
    for case in chosen:
        if given.against and not case.black_box:
            raise SystemExit(f"the case {case.name} measures only vmherd")
        for result in run(case, options):
            print(table(case, result))
            figures.note(result)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench", description="Measure the time, CPU, memory and requests of the controller."
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"cases to run (default all): {', '.join(CASES)}")
    parser.add_argument("--sizes", type=_sizes, default=(), help="sizes of each case, such as 1000,10000")
    parser.add_argument("--rounds", type=_number, default=3, help="rounds of each case and size (default 3)")
    parser.add_argument("--quick", action="store_true", help="shorten the phases that only wait; for a first look")
    parser.add_argument("--against", default="", metavar="COMMAND", help="measure this controller instead of vmherd")
    given = parser.parse_args()
    if unknown := [name for name in given.cases if name not in CASES]:
        parser.error(f"unknown case {unknown[0]!r}; the cases are {', '.join(CASES)}")
    return given


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(map(_number, text.split(",")))


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1")
    return int(text)


if __name__ == "__main__":
    main()
