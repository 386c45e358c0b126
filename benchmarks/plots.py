"""Draws the figures that have a target as bars, as one SVG picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from xml.sax.saxutils import escape

from msgspec import Struct

from benchmarks.case import Report, is_usable
from benchmarks.cases import CASES

WIDTH, ROW, LABEL, FIGURE = 900, 22, 430, 150
PAPER, TEXT, MET, MISSED, SPREAD, LINE = "#ffffff", "#24292f", "#2da44e", "#cf222e", "#57606a", "#0969da"
SPAN = 2.0
"""The right end of the axis, as a multiple of the target. A longer bar is cut off."""


class Bar(Struct, frozen=True):
    """One figure with its target. The values are the minimum, the median and the maximum."""

    label: str
    figure: str
    target: float
    values: tuple[float, float, float]

    @property
    def is_met(self) -> bool:
        return self.values[1] <= self.target


def bars(report: Report) -> Iterator[Bar]:
    """Yield a bar for each usable figure with a target above 0, in the order of the cases."""
    for case in CASES.values():
        for result in (each for each in report.results if each.case == case.name and each.subject == "vmherd"):
            for measure in case.measures:
                spread = result.spread(measure.key)
                if spread is None or not measure.target or not is_usable(measure, result):
                    continue
                size = f"{case.name} {result.size:,}" if case.unit_of_size else case.name
                figure = f"{spread[1]:,.{measure.digits}f} of {measure.target:g} {measure.unit}"
                yield Bar(f"{size}: {measure.title}", figure, measure.target, spread)


def draw(shown: Iterable[Bar]) -> str:
    """Return the picture. The vertical line is the target. The thin line is the range of all rounds."""
    rows = list(shown)
    height = ROW * (len(rows) + 1) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="{PAPER}"/>',
    ]
    for number, bar in enumerate(rows):
        parts += _row(bar, ROW * number + 4)
    target_x = _x(1.0)
    parts.append(f'<line x1="{target_x}" x2="{target_x}" y1="2" y2="{ROW * len(rows) + 4}" stroke="{LINE}"/>')
    parts.append(f'<text x="{target_x}" y="{height - 8}" text-anchor="middle" fill="{LINE}">target</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _row(bar: Bar, y: float) -> Iterator[str]:
    low, median, high = (value / bar.target for value in bar.values)
    yield f'<text x="4" y="{y + 13}" fill="{TEXT}">{escape(bar.label)}</text>'
    colour = MET if bar.is_met else MISSED
    yield f'<rect x="{LABEL}" y="{y}" width="{_x(median) - LABEL:.1f}" height="{ROW - 6}" fill="{colour}"/>'
    middle = y + (ROW - 6) / 2
    yield f'<line x1="{_x(low):.1f}" x2="{_x(high):.1f}" y1="{middle}" y2="{middle}" stroke="{SPREAD}"/>'
    yield f'<text x="{WIDTH - FIGURE + 6}" y="{y + 13}" fill="{TEXT}">{escape(bar.figure)}</text>'


def _x(share: float) -> float:
    return LABEL + (WIDTH - FIGURE - LABEL) * min(share, SPAN) / SPAN
