"""Draws one panel as SVG. The origin is the panel's upper left corner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias
from xml.sax.saxutils import escape

from msgspec import Struct

from tools.pictures.dashboards.answers import Series
from tools.pictures.dashboards.units import text_of, top_of

TEXT, FAINT, GRID, MARK = "#24292e", "#6e7781", "#e4e7eb", "#8250df"
COLOURS: Final = (
    *("#1f78c1", "#e0752d", "#3f8f3f", "#bf1b00", "#8f3bb8", "#c4a000", "#0a8a8a", "#d6589f"),
    *("#5195ce", "#f2a45c", "#7eb26d", "#e24d42", "#ba43a9", "#eab839", "#6ed0e0", "#806eb7"),
)
THRESHOLDS: Final = {"text": TEXT, "green": "#2f7d32", "orange": "#d9730d", "red": "#c4162a"}
CHARACTER = 6.1
"""The width of a character, in pixels."""

TITLE, LINE = 26, 15
"""The height of a panel's title, and of a line of text."""

LEGEND_LINES = 2
SHADES = ("#dbe9f6", "#bad6eb", "#89bedc", "#539ecd", "#2b7bba", "#0b559f")

Lines: TypeAlias = Iterator[str]


class Frame(Struct, frozen=True):
    """The size of a panel, the length of the time axis in seconds, and the marks at times before the end."""

    width: float
    height: float
    seconds: float
    marks: Sequence[tuple[float, str]] = ()


def draw(panel: Mapping[str, Any], found: Sequence[Sequence[Series]], frame: Frame) -> Lines:
    yield f'<rect width="{frame.width:.0f}" height="{frame.height:.0f}" rx="3" fill="#fff" stroke="{GRID}"/>'
    yield _text(10, 17, panel["title"], size=12, weight="600")
    body = DRAWN[panel["type"]]
    if any(found):
        yield from body(panel, found, frame)
    else:
        yield _text(frame.width / 2, frame.height / 2 + 8, "No data", colour=FAINT, anchor="middle")


def _stat(panel: Mapping[str, Any], found: Sequence[Sequence[Series]], frame: Frame) -> Lines:
    shown = [each for series in found for each in series]
    width = frame.width / len(shown)
    named = panel["options"].get("textMode") == "value_and_name"
    for number, each in enumerate(shown):
        newest = round(each.last, panel["fieldConfig"]["defaults"].get("decimals", 6))
        x, value = width * (number + 0.5), text_of(newest, _unit(panel))
        colour = _threshold(panel, each.last)
        yield _text(x, frame.height - 42, value, size=30, weight="600", colour=colour, anchor="middle")
        if named:
            yield _text(x, frame.height - 18, each.name, colour=FAINT, anchor="middle")


def _timeseries(panel: Mapping[str, Any], found: Sequence[Sequence[Series]], frame: Frame) -> Lines:
    shown = [each for series in found for each in series]
    legend = list(_legend([each.name for each in shown], frame))
    bottom = frame.height - 24 - LINE * (1 + max((line for line, _, _, _ in legend), default=-1))
    values = [value for each in shown for _, value in each.points]
    top = top_of(max(values), _unit(panel))
    yield from _axes(panel, frame, top, bottom)
    for number, each in enumerate(shown):
        for part in _unbroken(each.points, frame.seconds / 20):
            points = " ".join(f"{_x(at, frame):.0f},{_y(value, top, bottom):.1f}" for at, value in _sparse(part))
            yield f'<polyline points="{points}" fill="none" stroke="{_colour(number)}" stroke-width="1.3"/>'
    for line, x, number, name in legend:
        y = bottom + 33 + LINE * line
        if number >= 0:
            yield f'<rect x="{x:.0f}" y="{y - 5:.0f}" width="12" height="3" fill="{_colour(number)}"/>'
        yield _text(x + 16, y, name, size=10)


def _axes(panel: Mapping[str, Any], frame: Frame, top: float, bottom: float) -> Lines:
    for value in (0.0, top / 2, top):
        y = _y(value, top, bottom)
        yield f'<path d="M{LEFT} {y:.1f}H{frame.width - RIGHT:.0f}" stroke="{GRID}"/>'
        yield _text(LEFT - 5, y + 4, text_of(value, _unit(panel)), size=10, colour=FAINT, anchor="end")
    yield from _time_axis(frame, bottom)
    for at, _ in frame.marks:
        x = _x(at, frame)
        yield f'<path d="M{x:.0f} {TITLE + 4}V{bottom:.0f}" stroke="{MARK}" stroke-dasharray="4 3"/>'
        yield f'<path d="M{x - 4:.0f} {bottom:.0f}h8l-4 -6z" fill="{MARK}"/>'


def _time_axis(frame: Frame, bottom: float) -> Lines:
    for part in range(5):
        at = frame.seconds * (part / 4 - 1)
        minutes, seconds = divmod(round(-at), 60)
        label = "now" if not at else f"-{minutes}:{seconds:02}"
        yield _text(_x(at, frame), bottom + 15, label, size=10, colour=FAINT, anchor="end" if not at else "middle")


def _bargauge(panel: Mapping[str, Any], found: Sequence[Sequence[Series]], frame: Frame) -> Lines:
    shown = [each for series in found for each in series]
    room = frame.height - TITLE - 8
    fitting = shown[: max(int(room // 18), 1)]
    most = panel["fieldConfig"]["defaults"].get("max", max(each.last for each in shown) or 1)
    left = 12 + CHARACTER * max(len(each.name) for each in fitting)
    width = frame.width - left - 56
    for number, each in enumerate(fitting):
        y = TITLE + 6 + number * min(room / len(fitting), 26)
        colour = _threshold(panel, each.last)
        yield _text(left - 6, y + 11, each.name, anchor="end")
        yield f'<rect x="{left:.0f}" y="{y:.0f}" width="{width:.0f}" height="14" fill="{GRID}"/>'
        yield f'<rect x="{left:.0f}" y="{y:.0f}" width="{width * each.last / most:.0f}" height="14" fill="{colour}"/>'
        yield _text(left + width + 6, y + 11, text_of(each.last, _unit(panel)), colour=colour)


def _heatmap(panel: Mapping[str, Any], found: Sequence[Sequence[Series]], frame: Frame) -> Lines:
    """Draw cumulative buckets. A cell is the difference between a bucket and the next smaller bucket."""
    buckets = sorted((each for series in found for each in series), key=lambda each: float(each.labels["le"]))
    cells: list[dict[float, float]] = []
    below: dict[float, float] = {}
    for bucket in buckets:
        counts = dict(bucket.points)
        cells.append({at: max(count - below.get(at, 0.0), 0.0) for at, count in counts.items()})
        below = counts
    used = [n for n, cell in enumerate(cells) if any(value > 0.01 for value in cell.values())]
    first, last = (max(used[0] - 1, 0), used[-1]) if used else (0, 0)
    most = max((value for cell in cells for value in cell.values()), default=1.0) or 1.0
    bottom, columns = frame.height - 26, 60
    height, width = (bottom - TITLE - 4) / (last - first + 1), (frame.width - LEFT - RIGHT) / columns
    for number in range(first, last + 1):
        y = bottom - (number - first + 1) * height
        le = buckets[number].labels["le"]
        label = "more" if le == "+Inf" else f"≤ {text_of(float(le), 's')}"
        yield _text(LEFT - 5, y + height / 2 + 4, label, size=10, colour=FAINT, anchor="end")
        for column, value in _columns(cells[number], frame.seconds, columns).items():
            shade = SHADES[min(int(len(SHADES) * value / most), len(SHADES) - 1)]
            at = f'x="{LEFT + column * width:.1f}" y="{y:.1f}"'
            yield f'<rect {at} width="{width - 0.5:.1f}" height="{height - 0.5:.1f}" fill="{shade}"/>'
    yield from _time_axis(frame, bottom)


def _columns(cell: Mapping[float, float], seconds: float, columns: int) -> dict[int, float]:
    found: dict[int, float] = {}
    for at, value in cell.items():
        column = min(int((at / seconds + 1) * columns), columns - 1)
        if value > 0.01:
            found[column] = max(found.get(column, 0.0), value)
    return found


def _table(panel: Mapping[str, Any], found: Sequence[Sequence[Series]], frame: Frame) -> Lines:
    names = [f"Value #{target['refId']}" if len(found) > 1 else "Value" for target in panel["targets"]]
    rows: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    for column, series in zip(names, found, strict=True):
        for each in series:
            row = rows.setdefault(_key(panel, each.labels), dict(each.labels))
            row |= each.labels
            row[column] = text_of(each.last, "short")
    options = next(each["options"] for each in panel["transformations"] if each["id"] == "organize")
    hidden, renamed = options["excludeByName"], options["renameByName"]
    columns = [each for row in list(rows.values())[:1] for each in row if not hidden.get(each)]
    widths = [
        CHARACTER * max(len(renamed.get(each, each)), *(len(row.get(each, "")) for row in rows.values())) + 18
        for each in columns
    ]
    scale = min((frame.width - 16) / sum(widths), 1.6)
    size = 11 if scale >= 1 else 9
    fitting = int((frame.height - TITLE - 24) // 18)
    x = 10.0
    for column, width in zip(columns, widths, strict=True):
        yield _text(x, TITLE + 14, renamed.get(column, column), size=size, weight="600", colour=FAINT)
        for number, row in enumerate(list(rows.values())[:fitting]):
            linked = column == "name" and panel["fieldConfig"]["overrides"]
            colour = COLOURS[0] if linked else TEXT
            yield _text(x, TITLE + 33 + 18 * number, row.get(column, ""), size=size, colour=colour)
        x += width * scale
    if len(rows) > fitting:
        yield _text(frame.width - 10, 17, f"{fitting} of {len(rows)} rows", size=10, colour=FAINT, anchor="end")


def _key(panel: Mapping[str, Any], labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the labels by which Grafana merges the rows of several queries."""
    merges = any(each["id"] == "merge" for each in panel["transformations"])
    names = [name for name in labels if not merges or name in ("kind", "namespace", "name")]
    return tuple((name, labels[name]) for name in sorted(names))


DRAWN: Final[Mapping[str, Callable[[Mapping[str, Any], Sequence[Sequence[Series]], Frame], Lines]]] = {
    "stat": _stat,
    "timeseries": _timeseries,
    "bargauge": _bargauge,
    "heatmap": _heatmap,
    "table": _table,
}

LEFT, RIGHT = 62, 14
"""The width of the labels on the left of a graph, and the space on its right."""


def _legend(names: Sequence[str], frame: Frame) -> Iterator[tuple[int, float, int, str]]:
    """Yield the line, the position and the number of each name that fits."""
    line, x = 0, 12.0
    for number, name in enumerate(names):
        if not name:
            continue
        width = 28 + 6 * len(name)
        if x > 12 and x + width > frame.width - 50:
            line, x = line + 1, 12.0
        if line == LEGEND_LINES:
            yield line - 1, frame.width - 46, -1, f"+{len(names) - number}"
            return
        yield line, x, number, name
        x += width


def _unbroken(points: Sequence[tuple[float, float]], gap_s: float) -> Iterator[list[tuple[float, float]]]:
    """Yield the parts of a line between gaps."""
    part: list[tuple[float, float]] = []
    for at, value in points:
        if part and at - part[-1][0] > gap_s:
            yield part
            part = []
        part.append((at, value))
    if part:
        yield part


def _sparse(points: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Yield the points of a line without those between two equal values."""
    for n, point in enumerate(points):
        if 0 < n < len(points) - 1 and points[n - 1][1] == point[1] == points[n + 1][1]:
            continue
        yield point


def _x(at: float, frame: Frame) -> float:
    return LEFT + (frame.width - LEFT - RIGHT) * (1 + at / frame.seconds)


def _y(value: float, top: float, bottom: float) -> float:
    return bottom - (bottom - TITLE - 8) * min(max(value, 0.0) / top, 1.0)


def _unit(panel: Mapping[str, Any]) -> str:
    return str(panel["fieldConfig"]["defaults"].get("unit", "short"))


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _threshold(panel: Mapping[str, Any], value: float) -> str:
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    reached = [step["color"] for step in steps if step["value"] is None or value >= step["value"]]
    return THRESHOLDS[reached[-1]]


def _text(
    x: float, y: float, text: str, *, size: int = 11, colour: str = TEXT, anchor: str = "start", weight: str = "400"
) -> str:
    place = f'x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{colour}"'
    styled = "".join((f' text-anchor="{anchor}"' * (anchor != "start"), f' font-weight="{weight}"' * (weight != "400")))
    return f"<text {place}{styled}>{escape(text)}</text>"
