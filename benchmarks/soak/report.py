"""The results of a soak: the table, the JSON file, the picture, and the page in the documentation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, convert, field, json, to_builtins
from rich.console import Console
from rich.table import Table

from benchmarks.soak.plots import Mark, Panel, draw, short
from benchmarks.soak.sampling import MEASURES, Samples
from benchmarks.soak.trend import Verdict, judge

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "soak.md"
PICTURE = ROOT / "docs" / "images" / "soak.svg"
BEGIN, END = "<!-- begin: figures of `make soak` -->", "<!-- end: figures of `make soak` -->"


class Result(Struct, kw_only=True):
    """The outcome of a run. `all_problems` is empty if the run has passed."""

    minutes: float
    machine: str
    seed: int
    samples: Samples
    marks: list[Mark] = field(default_factory=list)
    operations: dict[str, int] = field(default_factory=dict)
    failed_operations: dict[str, int] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    drained: dict[str, tuple[float, float]] = field(default_factory=dict)
    """The value of some measures before the load, and their value after all objects were deleted."""

    new_series: dict[str, int] = field(default_factory=dict)
    """The metrics with more series after the run than before, and the number of the new series."""

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
            "yes" if verdict.flat else "NO",
        )
        for name, verdict in result.verdicts.items()
    ]


HEADINGS = ("figure", "second quarter", "third quarter", "last quarter", "highest", "slope per hour", "flat")


def show(result: Result) -> None:
    table = Table(*HEADINGS, title=f"{result.minutes:g} minutes of random load")
    for row in rows(result):
        table.add_row(*row)
    console = Console()
    console.print(table)
    for line in summary(result):
        console.print(f"- {line}", highlight=False)
    for problem in result.all_problems:
        console.print(f"[red]problem:[/red] {problem}", highlight=False)


def summary(result: Result) -> list[str]:
    operations = ", ".join(f"{count} {name}" for name, count in sorted(result.operations.items()))
    faults: dict[str, int] = {}
    for mark in result.marks:
        faults[mark.label] = faults.get(mark.label, 0) + 1
    lines = [
        f"{result.minutes:g} minutes, {len(result.samples.times_s)} samples, {result.machine}, seed {result.seed}",
        f"{sum(result.operations.values())} operations ({operations})",
        f"{len(result.marks)} faults ({', '.join(f'{count} times: {label}' for label, count in faults.items())})",
    ]
    lines += [
        f"{MEASURES[name].title}: {short(before)} before the load, {short(after)} after all objects were deleted"
        for name, (before, after) in result.drained.items()
    ]
    return lines


def write_json(result: Result, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(json.format(json.encode(result), indent=1) + b"\n")


def read_json(path: Path) -> Result:
    """Read the result of an earlier run, and judge its samples again."""
    saved = json.decode(path.read_bytes())
    samples = convert(saved["samples"], Samples)
    return convert({**saved, "verdicts": to_builtins(verdicts_of(samples))}, Result)


def picture(result: Result) -> str:
    panels = [
        Panel(measure.title, measure.unit, result.samples.values[name])
        for name, measure in MEASURES.items()
        if name != "uncollectable"
    ]
    return draw(result.samples.times_s, panels, result.marks)


def markdown(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    cells = [headings, ["---"] * len(headings), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def figures(result: Result) -> str:
    """Return the generated part of the documentation page."""
    listed = "\n".join(f"- {line}." for line in summary(result))
    verdict = (
        "\n".join(f"- Problem: {problem}" for problem in result.all_problems) or "All figures are flat. No problem."
    )
    return f"{BEGIN}\n\n{markdown(HEADINGS, rows(result))}\n\n{listed}\n\n{verdict}\n\n{END}"


def write_docs(result: Result, *, page: Path = PAGE, image: Path = PICTURE) -> None:
    """Replace the generated part of the documentation page, and write the picture."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    text = page.read_text()
    if not pattern.search(text):
        raise ValueError(f"{page} has no place for the figures")
    page.write_text(pattern.sub(lambda _: figures(result), text))
    image.parent.mkdir(parents=True, exist_ok=True)
    image.write_text(picture(result))
