"""The newest figures, with date, commit and machine. `make bench` writes them, and `make reference` quotes them.

<!-- figures: set-burst/1000 --> ... <!-- end of figures -->    the tables of a case and size, the newest first
<!-- set-burst/1000/up_s -->...<!-- -->                         the newest median of one figure, and its date
"""

import re
from pathlib import Path

import msgspec

from benchmarks.case import QUIET, Result
from benchmarks.cases import CASES
from benchmarks.table import number, table

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
    """Return the text of a page with the figures that it names."""
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
