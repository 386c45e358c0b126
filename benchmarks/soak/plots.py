"""Draws series of samples as one SVG picture with a panel for each series."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape

from msgspec import Struct

COLUMNS = 2
PANEL_WIDTH, PANEL_HEIGHT = 460, 150
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 28, 22
LINE, GRID, TEXT, PAPER = "#1f6feb", "#d0d7de", "#24292f", "#ffffff"
MARKS = ("#cf222e", "#bf8700", "#8250df", "#1a7f37")
"""The colours of the marks. The label that appears first gets the first colour."""


class Panel(Struct, frozen=True):
    """One panel with one series. The panel shows `unit` after the title."""

    title: str
    unit: str
    values: Sequence[float]


class Mark(Struct, frozen=True):
    """A vertical line in each panel at a moment of the run."""

    time_s: float
    label: str


def draw(times_s: Sequence[float], panels: Sequence[Panel], marks: Sequence[Mark] = ()) -> str:
    """Return the picture as SVG. Each panel begins at zero. The horizontal axis shows minutes."""
    rows = -(-len(panels) // COLUMNS)
    width, height = COLUMNS * PANEL_WIDTH, rows * PANEL_HEIGHT + BOTTOM
    colours = {label: MARKS[n % len(MARKS)] for n, label in enumerate(dict.fromkeys(mark.label for mark in marks))}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
    ]
    for number, panel in enumerate(panels):
        row, column = divmod(number, COLUMNS)
        parts.append(f'<g transform="translate({column * PANEL_WIDTH},{row * PANEL_HEIGHT})">')
        parts += _panel(times_s, panel, marks, colours)
        parts.append("</g>")
    parts += _legend(colours, height - 8)
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _panel(times_s: Sequence[float], panel: Panel, marks: Iterable[Mark], colours: dict[str, str]) -> Iterable[str]:
    right, bottom = PANEL_WIDTH - RIGHT, PANEL_HEIGHT - BOTTOM
    last_s, top = max(times_s, default=0.0) or 1.0, nice_ceiling(max(panel.values, default=0.0))

    def x(time_s: float) -> float:
        return LEFT + (right - LEFT) * time_s / last_s

    def y(value: float) -> float:
        return bottom - (bottom - TOP) * max(value, 0.0) / top

    unit = f" ({panel.unit})" if panel.unit else ""
    yield f'<text x="{LEFT}" y="{TOP - 10}" fill="{TEXT}" font-weight="bold">{escape(panel.title + unit)}</text>'
    for value in (0.0, top / 2, top):
        yield f'<line x1="{LEFT}" x2="{right}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="{GRID}"/>'
        yield f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end" fill="{TEXT}">{short(value)}</text>'
    for part in range(5):
        at_s = last_s * part / 4
        yield f'<text x="{x(at_s):.1f}" y="{bottom + 15}" text-anchor="middle" fill="{TEXT}">{at_s / 60:.3g}</text>'
    for mark in marks:
        at = f'x1="{x(mark.time_s):.1f}" x2="{x(mark.time_s):.1f}" y1="{TOP}" y2="{bottom}"'
        yield f'<line {at} stroke="{colours[mark.label]}" stroke-opacity="0.45" stroke-dasharray="3 2"/>'
    points = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in zip(times_s, panel.values, strict=True))
    yield f'<polyline points="{points}" fill="none" stroke="{LINE}" stroke-width="1.2"/>'


def _legend(colours: dict[str, str], y: int) -> Iterable[str]:
    x = LEFT
    for label, colour in {"minutes": TEXT, **colours}.items():
        yield f'<text x="{x}" y="{y}" fill="{colour}">{escape(label)}</text>'
        x += 24 + 7 * len(label)


def nice_ceiling(value: float) -> float:
    """Return a round number that is not smaller than `value`.

    Round numbers are 1, 2, 2.5, 5 and 10, times a power of ten.
    """
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value * (1 - 1e-9))


def short(value: float) -> str:
    """Return a number with at most four digits, such as 250, 2.5 or 1.25M."""
    for limit, suffix in ((1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e6 if suffix == 'M' else 1e3):.4g}{suffix}"
    return f"{value:.4g}"
