"""Pictures of a terminal."""

import xml.etree.ElementTree as ET

from rich.text import Text

from tools.pictures.run import svg, width_of


def test_a_picture_is_svg_that_loads_nothing_from_the_internet() -> None:
    drawn = svg(Text("$ vmherd <demo>"), title="demo", name="demo", width=40)
    assert ET.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"
    assert "&lt;demo&gt;" in drawn
    assert "url(http" not in drawn
    assert "@font-face" not in drawn


def test_the_same_text_gives_the_same_picture() -> None:
    first, second = (svg(Text("ready", style="green"), title="demo", name="demo", width=40) for _ in range(2))
    assert first == second


def test_the_width_is_that_of_the_longest_line() -> None:
    assert width_of(Text("one\nthree\ntwo")) == len("three") + 1
    assert width_of(Text("")) == 1
