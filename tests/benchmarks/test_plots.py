"""The pictures of the soak."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from benchmarks.soak.plots import COLUMNS, LEFT, PANEL_WIDTH, RIGHT, Mark, Panel, draw, nice_ceiling, short

SVG = "{http://www.w3.org/2000/svg}"
TIMES = [0.0, 30.0, 60.0]


def points(picture: ElementTree.Element) -> list[list[tuple[float, float]]]:
    """The points of each line, in the coordinates of the panel."""
    return [
        [(float(x), float(y)) for x, y in re.findall(r"(\S+),(\S+)", line.get("points", ""))]
        for line in picture.iter(f"{SVG}polyline")
    ]


def texts(picture: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in picture.iter(f"{SVG}text")]


def test_each_series_has_a_panel_with_its_title_and_its_points():
    panels = [Panel("Memory", "MiB", [10.0, 20.0, 15.0]), Panel("Tasks", "", [3.0, 3.0, 3.0])]
    picture = ElementTree.fromstring(draw(TIMES, panels))
    assert {"Memory (MiB)", "Tasks", "20", "5"} <= set(texts(picture))
    memory, tasks = points(picture)
    assert [x for x, _ in memory] == [LEFT, (LEFT + PANEL_WIDTH - RIGHT) / 2, PANEL_WIDTH - RIGHT]
    assert memory[1][1] < memory[2][1] < memory[0][1], "a larger value is higher on the page"
    assert len({y for _, y in tasks}) == 1


def test_panels_stand_side_by_side_and_the_picture_has_room_for_all():
    picture = ElementTree.fromstring(draw(TIMES, [Panel(str(number), "", [1.0] * 3) for number in range(COLUMNS + 1)]))
    places = [group.get("transform") for group in picture.iter(f"{SVG}g")]
    assert places == ["translate(0,0)", f"translate({PANEL_WIDTH},0)", "translate(0,150)"]
    assert float(picture.get("height", "0")) > 300


def test_each_mark_is_a_line_in_each_panel_and_each_label_stands_once_in_the_legend():
    marks = [Mark(15.0, "restart"), Mark(45.0, "restart"), Mark(50.0, "cut")]
    picture = ElementTree.fromstring(draw(TIMES, [Panel("a", "", [1.0] * 3), Panel("b", "", [1.0] * 3)], marks))
    dashed = [line for line in picture.iter(f"{SVG}line") if line.get("stroke-dasharray")]
    assert len(dashed) == 6
    assert [text for text in texts(picture) if text in ("restart", "cut")] == ["restart", "cut"]


def test_special_characters_in_titles_and_labels_are_escaped():
    picture = ElementTree.fromstring(draw(TIMES, [Panel("a<b&c", "", [1.0] * 3)], [Mark(1.0, "<x>")]))
    assert {"a<b&c", "<x>"} <= set(texts(picture))


def test_a_picture_without_samples_is_valid():
    picture = ElementTree.fromstring(draw([], [Panel("a", "", [])]))
    assert points(picture) == [[]]


@pytest.mark.parametrize(
    ("value", "ceiling"),
    [(0, 1), (-3, 1), (1, 1), (1.01, 2), (2.2, 2.5), (26, 50), (51, 100), (100, 100), (0.03, 0.05), (70_000, 100_000)],
)
def test_the_axis_ends_at_a_round_number(value: float, ceiling: float):
    assert nice_ceiling(value) == pytest.approx(ceiling)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (2.5, "2.5"), (9999, "9999"), (12_345, "12.35k"), (250_000, "250k"), (1_250_000, "1.25M")],
)
def test_a_long_number_is_shortened(value: float, text: str):
    assert short(value) == text
