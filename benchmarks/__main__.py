"""`python -m benchmarks`: run benchmark cases, print tables in Markdown, and write figures.json."""

import argparse

from benchmarks import figures, runner
from benchmarks.cases import CASES
from benchmarks.table import table


def main() -> None:
    given = _arguments()
    chosen = [CASES[name] for name in given.cases] or [
        each for each in CASES.values() if given.against == "" or each.black_box
    ]
    options = runner.Options(given.rounds, given.sizes, given.against, given.quick)
    for case in chosen:
        if given.against and not case.black_box:
            raise SystemExit(f"the case {case.name} measures only vmherd")
        for result in runner.run(case, options):
            print(table(case, result))
            figures.note(result)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench", description="Measure the time, CPU, memory and requests of the controller."
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"cases to run (default all): {', '.join(CASES)}")
    parser.add_argument("--sizes", type=_sizes, default=(), help="sizes of each case, such as 1000,10000")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each case and size (default 3)")
    parser.add_argument("--quick", action="store_true", help="shorten the phases that only wait; for a first look")
    parser.add_argument("--against", default="", metavar="COMMAND", help="measure this controller instead of vmherd")
    given = parser.parse_args()
    if unknown := [name for name in given.cases if name not in CASES]:
        parser.error(f"unknown case {unknown[0]!r}; the cases are {', '.join(CASES)}")
    return given


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    main()
