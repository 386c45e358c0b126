"""Quotes the figures of `make bench` in pages.

<!-- figures: set-burst/1000 --> ... <!-- end of figures -->    the tables of a case and size, the newest first
<!-- set-burst/1000/up_s -->...<!-- -->                         the newest median of one figure, and its date
"""

import re
from pathlib import Path

from benchmarks import figures
from benchmarks.cases import CASES
from benchmarks.table import heading, median, table

TABLES = re.compile(r"(<!-- figures: (.+?) -->\n).*?(?=<!-- end of figures -->)", re.DOTALL)
FIGURE = re.compile(r"(<!-- (\S+)/(\d+)/(.+?) -->).*?(?=<!-- -->)")


def page(path: Path) -> str:
    text = TABLES.sub(lambda found: f"{found[1]}{_tables(found[2].split())}\n", path.read_text())
    return FIGURE.sub(lambda found: f"{found[1]}{_figure(found[2], int(found[3]), found[4])}", text)


def _tables(names: list[str]) -> str:
    found = []
    for name, _, size in (each.partition("/") for each in names):
        results = [each for each in figures.read() if (each.case, each.size) == (name, int(size))]
        found += [heading(CASES[name], results[0]), *(table(CASES[name], each) for each in reversed(results))]
    return "\n\n".join(found)


def _figure(name: str, size: int, key: str) -> str:
    measured = [each for each in figures.read() if (each.case, each.size) == (name, size) and each.spread(key)]
    newest = max(measured, key=lambda each: each.conditions[-1].date)
    [measure] = [each for each in CASES[name].measures if each.key == key]
    when = newest.conditions[-1]
    return f"{median(newest, measure)} | {when.date}, {when.revision}, Python {when.python}"
