"""The newest figures, with date, commit and machine. `make bench` writes them, and `make reference` quotes them.

<!-- figures: set-burst/1000 --> ... <!-- end of figures -->    the tables of a case and size, the newest first
<!-- set-burst/1000/up_s -->...<!-- -->                         the newest median of one figure, and its date
"""

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from benchmarks.case import QUIET, Case, Measure, Result, is_usable
from benchmarks.cases import CASES

NOT_USABLE = "not usable"


def table(case: Case, *results: Result) -> str:
    """Return a section in Markdown, with a table for each result. A bold median has missed its target."""
    other = "" if results[0].subject == "vmherd" else f" (`{results[0].subject}`)"
    lines = [f"### {case.title}: {results[0].size:,} {case.unit_of_size}{other}", "", case.about]
    for result in results:
        lines += ["", "| figure | target | min | median | max |", "| --- | --- | --- | --- | --- |"]
        lines += [*_rows(case, result), "", _conditions(result), "", f"Command: `{result.command}`"]
    return "\n".join(lines)


def _rows(case: Case, result: Result) -> Iterable[str]:
    for measure in case.measures:
        spread = result.spread(measure.key)
        if spread is None:
            continue
        target = f"at most {number(measure.target, measure)}" if measure.target is not None else ""
        cells = [number(value, measure) for value in spread] if is_usable(measure, result) else [NOT_USABLE] * 3
        if measure.target is not None and is_usable(measure, result) and spread[1] > measure.target:
            cells[1] = f"**{cells[1]}**"
        unit = f" ({measure.unit})" if measure.unit else ""
        yield f"| {measure.title}{unit} | {' | '.join([target, *cells])} |"


def number(value: float, measure: Measure) -> str:
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


FILE = Path(__file__).with_name("figures.json")
TABLES = re.compile(r"(<!-- figures: (.+?) -->\n).*?(?=<!-- end of figures -->)", re.DOTALL)
FIGURE = re.compile(r"(<!-- (\S+/\d+)/(.+?) -->).*?(?=<!-- -->)")


def read(file: Path = FILE) -> list[Result]:
    """Return the results, sorted by case, size and the version of Python."""
    return msgspec.json.decode(file.read_bytes(), type=list[Result])


def note(result: Result, file: Path = FILE) -> None:
    """Replace the earlier result of the case, size and minor version of Python, unless it is not comparable."""
    if result.subject == "vmherd" and result.others <= QUIET and "--quick" not in result.command:
        kept = [each for each in read(file) if _identity(each) != _identity(result)]
        results = msgspec.json.encode(sorted([*kept, result], key=_identity))
        file.write_bytes(msgspec.json.format(results, indent=1) + b"\n")


def quoted(page: Path) -> str:
    text = TABLES.sub(lambda found: f"{found[1]}{_tables(found[2].split())}\n", page.read_text())
    return FIGURE.sub(lambda found: f"{found[1]}{_figure(found[2], found[3])}", text)


def _identity(result: Result) -> tuple[str, int, list[int]]:
    return result.case, result.size, [int(part) for part in result.conditions[-1].python.split(".")[:2]]


def _results(name: str) -> list[Result]:
    return [each for each in reversed(read()) if f"{each.case}/{each.size}" == name]


def _tables(names: list[str]) -> str:
    return "\n\n".join(table(CASES[name.partition("/")[0]], *_results(name)) for name in names)


def _figure(name: str, key: str) -> str:
    found = [(each.conditions[-1], spread) for each in _results(name) if (spread := each.spread(key))]
    when, (_, median, _) = max(found, key=lambda each: each[0].date)
    [measure] = [each for each in CASES[name.partition("/")[0]].measures if each.key == key]
    return f"{number(median, measure)} {measure.unit} | {when.date}, {when.revision}, Python {when.python}"
