"""Two runs of the demo have other names, addresses and ages, and give the same pictures."""

from rich.console import Console

from sandbox.demo.tables import Row, View, draw
from tests.sandbox.demo.objects import event, owner, set_vmi, vm, vmi
from tools.pictures.__main__ import clean_objects


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
