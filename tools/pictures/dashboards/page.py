"""Draws a whole dashboard as SVG, with the layout of its panels in Grafana."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from tools.pictures.dashboards.answers import Series
from tools.pictures.dashboards.panels import FAINT, MARK, TEXT, Frame, draw

COLUMN, ROW, SPACE, HEAD = 58, 30, 6, 62
"""The width and height of a cell of Grafana's grid, the space between panels, and the height of the title."""

WIDTH = 24 * COLUMN + 2 * SPACE


def page(
    board: Mapping[str, Any],
    found: Mapping[int, Sequence[Sequence[Series]]],
    *,
    seconds: float,
    marks: Sequence[tuple[float, str]],
    note: str,
) -> str:
    """Return the picture. `found` has the series of each query, by the number of the panel."""
    height = HEAD + ROW * max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"]) + SPACE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' font-family="Helvetica, Arial, sans-serif">',
        f"<title>{escape(board['title'])}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#f4f5f7"/>',
        f'<text x="12" y="26" font-size="18" font-weight="600" fill="{TEXT}">{escape(board["title"])}</text>',
        f'<text x="12" y="48" font-size="11" fill="{FAINT}">{escape(note)}</text>',
    ]
    if marks:
        names = "; ".join(text for _, text in marks)
        parts.append(
            f'<text x="{WIDTH - 12}" y="26" font-size="11" fill="{MARK}" text-anchor="end">▲ {escape(names)}</text>'
        )
    for panel in board["panels"]:
        place = panel["gridPos"]
        x, y = SPACE + place["x"] * COLUMN, HEAD + place["y"] * ROW
        if panel["type"] == "row":
            title = escape(panel["title"])
            parts.append(f'<text x="12" y="{y + 21}" font-size="14" font-weight="600" fill="{TEXT}">{title}</text>')
            continue
        frame = Frame(place["w"] * COLUMN - SPACE, place["h"] * ROW - SPACE, seconds, marks)
        parts += [f'<g transform="translate({x},{y})">', *draw(panel, found[panel["id"]], frame), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def lacking(picture: str, board: Mapping[str, Any]) -> list[str]:
    """Return the titles of the panels that the picture does not show."""
    return [panel["title"] for panel in board["panels"] if f">{escape(panel['title'])}</text>" not in picture]
