"""Draws boxes and arrows on a grid as SVG. `architecture.yaml` describes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from xml.sax.saxutils import escape

import msgspec
from msgspec import Struct, field

DESCRIPTION = Path(__file__).with_name("architecture.yaml")

BOX_WIDTH, BOX_HEIGHT = 136, 52
GAP_X, GAP_Y = 62, 50
MARGIN = 16
LEGEND_HEIGHT = 34

Kind: TypeAlias = Literal["outside", "waits", "state", "pure"]
COLOURS: Final[Mapping[Kind, tuple[str, str]]] = {
    "outside": ("#eaeef2", "#57606a"),
    "waits": ("#fff1d6", "#9a6700"),
    "state": ("#ddf4ff", "#0969da"),
    "pure": ("#dafbe1", "#1a7f37"),
}
"""The fill and the border of the boxes of each kind."""

MEANING: Final[Mapping[Kind, str]] = {
    "outside": "outside of vmherd",
    "waits": "shell: waits, does all I/O",
    "state": "state: the caches, and a view of them",
    "pure": "core: pure functions that decide",
}
PAPER, TEXT, LINE = "#ffffff", "#24292f", "#57606a"

Point: TypeAlias = tuple[float, float]


class Box(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A box at a column and a row of the grid."""

    name: str
    at: tuple[int, int]
    kind: Kind
    note: str = ""
    wide: int = 1

    @property
    def left(self) -> float:
        return MARGIN + self.at[0] * (BOX_WIDTH + GAP_X)

    @property
    def top(self) -> float:
        return MARGIN + self.at[1] * (BOX_HEIGHT + GAP_Y)

    @property
    def right(self) -> float:
        return self.left + self.wide * BOX_WIDTH + (self.wide - 1) * GAP_X

    @property
    def bottom(self) -> float:
        return self.top + BOX_HEIGHT

    @property
    def middle(self) -> Point:
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2


class Arrow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    start: str = field(name="from")
    end: str = field(name="to")
    label: str = ""


class Drawing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]

    def box(self, name: str) -> Box:
        return next(box for box in self.boxes if box.name == name)


def parse(text: str) -> Drawing:
    return msgspec.yaml.decode(text, type=Drawing)


def draw(drawing: Drawing) -> str:
    """Return the picture as SVG."""
    width = max(box.right for box in drawing.boxes) + MARGIN
    height = max(box.bottom for box in drawing.boxes) + MARGIN + LEGEND_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}"'
        f' height="{height:g}" font-family="sans-serif" font-size="13">',
        "<title>How vmherd works</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{LINE}"/></marker></defs>',
        f'<rect width="{width:g}" height="{height:g}" fill="{PAPER}"/>',
        *(part for box in drawing.boxes for part in _box(box)),
        *(part for arrow in drawing.arrows for part in _arrow(drawing, arrow)),
        *_legend(height - LEGEND_HEIGHT / 2),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _box(box: Box) -> Iterable[str]:
    fill, border = COLOURS[box.kind]
    x, y = box.middle
    yield (
        f'<rect x="{box.left:g}" y="{box.top:g}" width="{box.right - box.left:g}" height="{BOX_HEIGHT}" rx="6"'
        f' fill="{fill}" stroke="{border}"/>'
    )
    yield _text(x, y - 4, box.name, weight="bold")
    yield _text(x, y + 14, box.note, size=11)


def _arrow(drawing: Drawing, arrow: Arrow) -> Iterable[str]:
    points = path(drawing.box(arrow.start), drawing.box(arrow.end))
    yield (
        f'<path d="M{"L".join(f"{x:g} {y:g}" for x, y in points)}" fill="none" stroke="{LINE}" stroke-width="1.4"'
        ' marker-end="url(#tip)"/>'
    )
    (x1, y1), (x2, y2) = points[-2:]
    if x1 == x2:
        yield _text(x1 + 6, (y1 + y2) / 2 + 4, arrow.label, size=11, anchor="start")
    else:
        yield _text((x1 + x2) / 2, y1 - 6, arrow.label, size=11)


def path(start: Box, end: Box) -> Sequence[Point]:
    """Return the corners of the line between two boxes.

    Boxes below each other are joined by a vertical line, and boxes in a row by a horizontal line. Otherwise, the line
    leaves the first box to its side and ends at the top or the bottom of the second box.
    """
    (x, y), (to_x, to_y) = start.middle, end.middle
    out, into = (start.bottom, end.top) if to_y > y else (start.top, end.bottom)
    if end.left <= x <= end.right or start.left <= to_x <= start.right:
        straight = x if end.left <= x <= end.right else to_x
        return (straight, out), (straight, into)
    side = start.right if to_x > x else start.left
    if y == to_y:
        return (side, y), (end.left if to_x > x else end.right, y)
    return (side, y), (to_x, y), (to_x, into)


def _legend(y: float) -> Iterable[str]:
    x = float(MARGIN)
    for kind, meaning in MEANING.items():
        fill, border = COLOURS[kind]
        yield f'<rect x="{x:g}" y="{y - 9:g}" width="18" height="14" rx="3" fill="{fill}" stroke="{border}"/>'
        yield _text(x + 26, y + 3, meaning, size=12, anchor="start")
        x += 60 + 7.2 * len(meaning)


def _text(x: float, y: float, text: str, *, size: int = 13, weight: str = "normal", anchor: str = "middle") -> str:
    style: dict[str, Any] = {"font-size": size, "font-weight": weight, "text-anchor": anchor}
    attributes = " ".join(f'{name}="{value}"' for name, value in style.items())
    return f'<text x="{x:g}" y="{y:g}" fill="{TEXT}" {attributes}>{escape(text)}</text>'
