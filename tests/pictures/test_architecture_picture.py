"""The picture of the architecture: each box is in the page and in the code, and no line crosses a box."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import combinations, pairwise
from pathlib import Path

import msgspec
import pytest

from tools.pictures.architecture import DESCRIPTION, Arrow, Box, Drawing, draw, parse, path

ROOT = Path(__file__).resolve().parent.parent.parent
DRAWING = parse(DESCRIPTION.read_text())
PICTURE = ROOT / "docs" / "images" / "architecture.svg"


def box(name: str, column: int, row: int, wide: int = 1) -> Box:
    return Box(name=name, at=(column, row), kind="pure", wide=wide)


def test_the_committed_picture_is_the_drawing_of_the_description() -> None:
    assert PICTURE.read_text() == draw(DRAWING), "run `make pictures`"


def test_the_picture_is_svg() -> None:
    assert ET.fromstring(draw(DRAWING)).tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize("name", [each.name for each in DRAWING.boxes if each.kind != "outside"])
def test_each_box_is_a_name_of_the_code(name: str) -> None:
    sources = [path for folder in ("controller", "informers") for path in (ROOT / folder).rglob("*.py")]
    assert any(name in path.read_text() or path.stem == name for path in sources)


def test_each_arrow_joins_two_boxes_and_each_box_has_an_arrow() -> None:
    joined = {name for arrow in DRAWING.arrows for name in (arrow.start, arrow.end)}
    assert joined == {each.name for each in DRAWING.boxes}


def test_boxes_do_not_overlap() -> None:
    for one, other in combinations(DRAWING.boxes, 2):
        apart = one.right < other.left or other.right < one.left or one.bottom < other.top or other.bottom < one.top
        assert apart, (one.name, other.name)


@pytest.mark.parametrize("arrow", DRAWING.arrows, ids=lambda arrow: f"{arrow.start}-{arrow.end}")
def test_no_line_crosses_a_box(arrow: Arrow) -> None:
    for (x1, y1), (x2, y2) in pairwise(path(DRAWING.box(arrow.start), DRAWING.box(arrow.end))):
        for each in DRAWING.boxes:
            beside = max(x1, x2) <= each.left or min(x1, x2) >= each.right
            above = max(y1, y2) <= each.top or min(y1, y2) >= each.bottom
            assert beside or above, each.name


def test_a_line_between_two_columns_has_a_corner() -> None:
    first, second = box("a", 0, 0), box("b", 1, 1)
    (x1, y1), (x2, y2), (x3, y3) = path(first, second)
    assert (x1, y1) == (first.right, first.middle[1])
    assert (x2, y2) == (second.middle[0], y1)
    assert (x3, y3) == (second.middle[0], second.top)


def test_a_line_to_a_wide_box_is_straight() -> None:
    wide, below = box("a", 0, 0, wide=3), box("b", 2, 1)
    assert path(below, wide) == ((below.middle[0], below.top), (below.middle[0], wide.bottom))
    assert path(wide, below) == ((below.middle[0], wide.bottom), (below.middle[0], below.top))


def test_a_text_is_escaped() -> None:
    assert "a &lt; b" in draw(Drawing(boxes=(box("a < b", 0, 0),), arrows=()))


def test_an_unknown_field_of_the_description_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="colour"):
        parse("boxes: [{name: a, at: [0, 0], kind: pure, colour: red}]\narrows: []\n")
