"""Writes the results as a table in Markdown, and into docs/performance.md."""

import re
from collections.abc import Iterable
from pathlib import Path

from benchmarks.case import QUIET, Case, Measure, Report, Result, is_usable
from benchmarks.cases import CASES

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "performance.md"
NOT_USABLE = "not usable"


def markdown(report: Report) -> str:
    """Return a section for each result, in the order of the cases."""
    return "\n\n".join(
        _section(case, result) for case in CASES.values() for result in report.results if result.case == case.name
    )


def _section(case: Case, result: Result) -> str:
    other = "" if result.subject == "vmherd" else f" (`{result.subject}`)"
    lines = [
        f"### {case.title}: {result.size:,} {case.unit_of_size}{other}",
        "",
        case.about,
        "",
        "| figure | target | min | median | max |",
    ]
    lines += ["| --- | --- | --- | --- | --- |", *_rows(case, result), "", _conditions(result), ""]
    return "\n".join([*lines, f"Command: `{result.command}`"])


def _rows(case: Case, result: Result) -> Iterable[str]:
    for measure in case.measures:
        spread = result.spread(measure.key)
        if spread is None:
            continue
        target = f"at most {_number(measure.target, measure)}" if measure.target is not None else ""
        cells = [_number(value, measure) for value in spread] if is_usable(measure, result) else [NOT_USABLE] * 3
        if measure.target is not None and is_usable(measure, result) and spread[1] > measure.target:
            cells[1] = f"**{cells[1]}**"
        unit = f" ({measure.unit})" if measure.unit else ""
        yield f"| {measure.title}{unit} | {' | '.join([target, *cells])} |"


def _number(value: float, measure: Measure) -> str:
    return f"{value:,.{measure.digits}f}"


def _conditions(result: Result) -> str:
    last = result.conditions[-1]
    rounds = len(result.rounds)
    text = (
        f"{rounds} round{'s' if rounds > 1 else ''}, {last.date}, revision {last.revision}, {last.cores} shared cores, "
        f"Python {last.python}. Other programs used {result.others:.0%} of the CPU."
    )
    if result.others > QUIET:
        text += " So the wall times are not usable."
    return text


def write_docs(report: Report, *, page: Path = PAGE) -> None:
    write_figures(page, "make bench", markdown(report))


def write_figures(page: Path, command: str, text: str) -> None:
    """Replace the part of the page that a command generates. Raises ValueError if the page has no such part."""
    begin, end = (f"<!-- {word}: figures of `{command}` -->" for word in ("begin", "end"))
    pattern = re.compile(f"{re.escape(begin)}.*{re.escape(end)}", re.DOTALL)
    old = page.read_text()
    if not pattern.search(old):
        raise ValueError(f"{page} has no place for the figures")
    page.write_text(pattern.sub(lambda _: f"{begin}\n\n{text}\n\n{end}", old))
