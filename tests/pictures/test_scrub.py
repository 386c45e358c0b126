"""Two runs of the demo have other names, addresses and ages, and give the same pictures."""

import re

from rich.console import Console

from sandbox.demo.tables import Row, View, draw
from tests.sandbox.demo.objects import event, owner, set_vmi, vm, vmi
from tools.pictures.scrub import clean_objects, clean_table, clean_text


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


def test_a_screen_keeps_what_is_the_same_in_each_run() -> None:
    shown = re.sub(" +", " ", screen(a_run("b", 3)))
    assert "vmirs/set 3 3 3 3" in shown
    assert "web-1 Running True 1 Running" in shown
    [name] = set(re.findall(r"Created VMI (test\w{5})\b", shown))
    assert re.search(rf"^{name} Running True node\d\d 10\.0\.0\.\d+$", shown.replace(" \n", "\n"), re.MULTILINE)
    assert "bbbb" not in shown


def test_events_are_in_the_order_of_their_writes_with_fixed_ages() -> None:
    lines = [re.sub(" +", " ", line) for line in screen(a_run("b", 3)).splitlines() if "SuccessfulCreate" in line]
    assert [line.split()[0] for line in lines] == ["4s", "2s"]
    assert lines[1].rstrip().endswith("Updated VM web-0")


TREE = """\
NAME               REV    STATUS         READY   NODE     AGE    WHY
vmpool/web         2->3   Updating 1/2   1/2              {age}
|- vm/web-0        3      Running        False            {age}    Back-off pulling image
`- vm/web-1        2      Running        True    {node}   {age}    waits for web-0
"""


def test_a_tree_gets_fixed_ages_and_nodes_and_narrow_columns() -> None:
    cleaned = clean_table(TREE.format(age="109s", node="node05"))
    assert cleaned.splitlines() == [
        "NAME          REV    STATUS         READY   NODE     AGE   WHY",
        "vmpool/web    2->3   Updating 1/2   1/2              3m",
        "|- vm/web-0   3      Running        False            3m    Back-off pulling image",
        "`- vm/web-1   2      Running        True    node03   3m    waits for web-0",
    ]
    assert clean_table(TREE.format(age="31s ", node="node01")) == cleaned


def test_why_gets_a_fixed_leader_and_fixed_times() -> None:
    text = (
        "  cause    web-0: ImagePullBackOff since 12s\n"
        "  next     healing in 4m47s; RolloutStalled in 9m1s; the controller looks again in 28s\n"
        "  leader   host-7_2f700d0e-075c-4200-8d76-7fccc8a0be3d (lease default/vmherd, renewed 1s ago)\n"
        "  try      kubectl vmherd rollout undo vmpool/web\n"
    )
    assert clean_text(text) == (
        "  cause    web-0: ImagePullBackOff since 10s\n"
        "  next     healing in 5m; RolloutStalled in 10m; the controller looks again in 30s\n"
        "  leader   demo_00000000-0000-0000-0000-000000000000 (lease default/vmherd, renewed 2s ago)\n"
        "  try      kubectl vmherd rollout undo vmpool/web\n"
    )
