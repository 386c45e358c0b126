"""Pictures of a terminal, the same for each run of the demo, and `python -m tools.pictures` as a command."""

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from sandbox.demo.tables import Row, View, draw
from tests.sandbox.demo.objects import event, owner, set_vmi, vm, vmi
from tools.pictures import __main__ as command
from tools.pictures.__main__ import Shots, clean_objects, svg, width_of


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


def a_run(letter: str, number: int) -> View:
    """The objects of a run. The letter is in each name that the cluster makes, and the number in each address."""
    names = [f"test{letter * 4}{each}" for each in "xyz"]
    place = {"NodeName": f"node{number:02}", "IP": f"10.{number}.7.9"}
    vms = (vm(f"web-{each}") for each in "01")
    return View(
        owners={"vmirs": (owner("set"),), "vmpool": (owner("web", 2),)},
        vms=tuple(Row(each.cells, {**each.meta, "uid": letter * 36}) for each in vms),
        vmis=(*(set_vmi(each, **place) for each in names), *(vmi(f"web-{each}", **place) for each in "01")),
        events=(
            event("Updated VM web-0", version=10 * number, **{"Last Seen": f"{number}s"}),
            event(f"Created VMI {names[0]}", version=7, **{"Last Seen": "9s"}),
        ),
    )


def screen(view: View) -> str:
    console = Console(width=120, force_terminal=False)
    with console.capture() as capture:
        console.print(draw(clean_objects(view), width=120, height=40))
    return capture.get()


def test_the_screens_of_two_runs_are_equal() -> None:
    assert screen(a_run("b", 1)) == screen(a_run("q", 5))


NAMES = {"demo.svg", "tree.svg", "why.svg"}
ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_command_makes_all_pictures() -> None:
    made = command.pictures(Shots(demo=Text("demo"), tree=Text("tree"), why=Text("why")))
    assert {path.name for path in made} == NAMES
    assert all(text.startswith("<svg") for text in made.values())


def test_the_readme_shows_all_pictures() -> None:
    readme = (ROOT / "README.md").read_text()
    assert {name for name in NAMES if f"(docs/images/{name})" in readme} == NAMES


@pytest.mark.cluster
@pytest.mark.e2e
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("control_plane_binaries")
def test_the_committed_pictures_are_those_of_a_run() -> None:
    check = [sys.executable, "-m", "tools.pictures", "--check"]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
