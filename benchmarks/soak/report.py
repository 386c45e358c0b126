"""The results of a soak: the table, the JSON file, and the page in the documentation."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from msgspec import Struct, field

from benchmarks.page import ROOT, write_figures
from benchmarks.soak.sampling import MEASURES, Samples
from benchmarks.soak.trend import Verdict, judge

PAGE = ROOT / "docs" / "soak.md"
BARS = "▁▂▃▄▅▆▇█"
WIDTH = 24
"""The number of bars that show a figure over time."""


class Result(Struct, kw_only=True):
    """The outcome of a run. `all_problems` is empty if the run has passed."""

    minutes: float
    machine: str
    seed: int
    samples: Samples
    faults: list[str] = field(default_factory=list)
    operations: dict[str, int] = field(default_factory=dict)
    failed_operations: dict[str, int] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    drained: dict[str, tuple[float, float]] = field(default_factory=dict)
    """The value of some measures before the load, and their value after all objects were deleted."""

    problems: list[str] = field(default_factory=list)
    """All problems of the run except growing series."""

    @property
    def all_problems(self) -> list[str]:
        return growing(self.verdicts) + self.problems


def verdicts_of(samples: Samples) -> dict[str, Verdict]:
    return {name: judge(samples.times_s, samples.values[name], measure.tolerance) for name, measure in MEASURES.items()}


def growing(verdicts: Mapping[str, Verdict]) -> list[str]:
    return [
        f"{MEASURES[name].title} grows: {short(verdict.early)} to {short(verdict.late)},"
        f" {short(verdict.slope_per_hour)} an hour"
        for name, verdict in verdicts.items()
        if not verdict.flat
    ]


def rows(result: Result) -> list[tuple[str, ...]]:
    """Return the table with one row for each measure. All cells are text."""
    return [
        (
            f"{MEASURES[name].title}{f' ({unit})' if (unit := MEASURES[name].unit) else ''}",
            short(verdict.early),
            short(verdict.middle),
            short(verdict.late),
            short(verdict.highest),
            f"{verdict.slope_per_hour:+.3g}",
            over_time(result.samples.values[name]),
            "yes" if verdict.flat else "NO",
        )
        for name, verdict in result.verdicts.items()
    ]


HEADINGS = (
    "figure",
    "second quarter",
    "third quarter",
    "last quarter",
    "highest",
    "slope per hour",
    "over time",
    "flat",
)


def summary(result: Result) -> list[str]:
    operations = ", ".join(f"{count} {name}" for name, count in sorted(result.operations.items()))
    faults = ", ".join(f"{count} times: {label}" for label, count in Counter(result.faults).items())
    lines = [
        f"{result.minutes:g} minutes, {len(result.samples.times_s)} samples, {result.machine}, seed {result.seed}",
        f"{sum(result.operations.values())} operations ({operations})",
        f"{len(result.faults)} faults ({faults})",
    ]
    lines += [
        f"{MEASURES[name].title}: {short(before)} before the load, {short(after)} after all objects were deleted"
        for name, (before, after) in result.drained.items()
    ]
    return lines


def markdown(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    cells = [headings, ["---"] * len(headings), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def figures(result: Result) -> str:
    """Return the generated part of the documentation page."""
    listed = "\n".join(f"- {line}." for line in summary(result))
    verdict = (
        "\n".join(f"- Problem: {problem}" for problem in result.all_problems) or "All figures are flat. No problem."
    )
    return f"{markdown(HEADINGS, rows(result))}\n\n{listed}\n\n{verdict}"


def write_docs(result: Result, *, page: Path = PAGE) -> None:
    """Replace the generated part of the documentation page."""
    write_figures(page, "make soak", figures(result))


def over_time(values: Sequence[float]) -> str:
    """Return bars for the medians of equal parts of the run. The lowest bar is 0, the highest is the largest median."""
    ends = [len(values) * number // WIDTH for number in range(WIDTH + 1)]
    medians = [statistics.median(values[start:end]) for start, end in pairwise(ends) if start < end]
    top = max(medians, default=0.0) or 1.0
    return "".join(BARS[round(max(value, 0.0) / top * (len(BARS) - 1))] for value in medians)


def short(value: float) -> str:
    """Return a number with at most four digits, such as 250, 2.5 or 1.25M."""
    for limit, unit, suffix in ((1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= limit:
            return f"{value / unit:.4g}{suffix}"
    return f"{value:.4g}"
