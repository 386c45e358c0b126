"""The diagram of the architecture: each box is a name of the code, and each arrow joins two boxes."""

import re

import pytest

from tests.pages.session import ROOT

[DIAGRAM] = re.findall(r"```mermaid\n(.*?)```", (ROOT / "docs" / "architecture.md").read_text(), re.DOTALL)
BOXES = dict(re.findall(r"^ +(\w+)\[.*]:::(\w+)$", DIAGRAM, re.MULTILINE))


@pytest.mark.parametrize("name", [name for name, kind in BOXES.items() if kind != "outside"])
def test_each_box_is_a_name_of_the_code(name: str) -> None:
    sources = [path for folder in ("controller", "informers") for path in (ROOT / folder).rglob("*.py")]
    assert any(name in path.read_text() or path.stem == name for path in sources)


def test_each_arrow_joins_two_boxes_and_each_box_has_an_arrow() -> None:
    arrows = re.findall(r"^ +(\w+) -->\|.+\| (\w+)$", DIAGRAM, re.MULTILINE)
    assert len(arrows) == DIAGRAM.count("-->")
    assert {name for arrow in arrows for name in arrow} == BOXES.keys()


def test_each_kind_of_box_has_its_colours() -> None:
    assert set(re.findall(r"classDef (\w+) ", DIAGRAM)) == set(BOXES.values())
