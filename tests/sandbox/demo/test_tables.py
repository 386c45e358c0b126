"""The demo's tables fit into the terminal and show all objects, the lines below them, its experiments, and the lines to
paste.
"""

import json
import re
import shlex
from pathlib import Path

import pytest
from rich.console import Console, RenderableType
from rich.screen import Screen
from rich.text import Text

from sandbox.demo.experiments import EXPERIMENTS
from sandbox.demo.hints import OTHER_KEYS, Report, draw_hints, lines_to_paste, screen
from sandbox.demo.tables import Row, View, draw, rows_of
from tests.sandbox.demo.objects import event, owner, set_vmi, vm, vmi


def picture(view: View, *, width: int = 120, height: int = 50) -> list[str]:
    shown = printed(draw(view, width=width, height=height), width=width, height=height)
    return [line.rstrip() for line in shown.splitlines()]


def printed(drawn: RenderableType, *, width: int, height: int, end: str = "\n") -> str:
    console = Console(width=width, height=height, force_terminal=False)
    with console.capture() as capture:
        console.print(drawn, end=end)
    return capture.get()


def row(view: View, beginning: str) -> str:
    [line] = [line for line in picture(view) if line.startswith(beginning)]
    return re.sub(" +", " ", line).strip()


def of_everything(number: int) -> View:
    names = [f"pool-{ordinal}" for ordinal in range(number)]
    return View(
        owners={"vmirs": (owner("set"),), "vmpool": (owner("pool"),)},
        vms=tuple(map(vm, names)),
        vmis=(*map(vmi, names), *(set_vmi(f"test{ordinal}") for ordinal in range(number))),
        events=tuple(event(f"Created a virtual machine with a name as long as this line: {name}") for name in names),
    )


@pytest.mark.parametrize(
    ("short", "cells", "shown"),
    [
        (
            "vmpool",
            {"Desired": "5", "Current": "4", "Updated": "2", "Status": "Updating"},
            "vmpool/web 5 4 3 2 Updating",
        ),
        ("vmirs", {"Status": "Failing"}, "vmirs/web 3 3 3 3 Failing"),
        (
            "vmpool",
            {"Status": "Updating", "Problem": "web-1: ErrImagePull"},
            "vmpool/web 3 3 3 3 Updating web-1: ErrImagePull",
        ),
    ],
)
def test_an_owner_is_shown_with_its_counts_its_word_and_its_first_problem(
    short: str, cells: dict[str, str], shown: str
) -> None:
    assert row(View(owners={short: (owner("web", **cells),)}), f"{short}/web") == shown


def test_the_cells_and_the_metadata_of_a_servers_table_are_read_by_name() -> None:
    [read] = rows_of(
        {
            "columnDefinitions": [{"name": "Name"}, {"name": "Ready"}, {"name": "Count"}],
            "rows": [{"cells": ["web", None, 3], "object": {"metadata": {"name": "web"}}}],
        }
    )
    assert (read.name, read.cells) == ("web", {"Name": "web", "Ready": "", "Count": "3"})


@pytest.mark.parametrize(
    ("subject", "of_vmi", "shown"),
    [
        (vm("web-0", "web-1"), "web-1", "web-0 Running True 1 Running uid-web-"),
        (vm("web-0", "web-2"), "web-1", "web-0 Running True 2 (VMI: 1) Running uid-web-"),
        (vm("web-0", "named-by-others"), "named-by-others", "web-0 Running True named-by-others Running uid-web-"),
        (vm("web-0", controller=""), "pool-1", "web-0 (detached) Running True 1 Running uid-web-"),
        (vm("web-0", leaving=True), "pool-1", "web-0 Terminating False 1 Running uid-web-"),
    ],
)
def test_a_vm_is_shown_with_its_status_and_its_revision(subject: Row, of_vmi: str, shown: str) -> None:
    assert row(View(vms=(subject,), vmis=(vmi("web-0", of_vmi),)), "web-0") == shown


def test_vms_are_in_the_order_of_their_numbers() -> None:
    lines = picture(View(vms=tuple(vm(name) for name in ("web-10", "web-9", "web-2", "lonely"))))
    names = [line.split()[0] for line in lines if "Running" in line]
    assert names == ["lonely", "web-2", "web-9", "web-10"]


def lines_of_events(view: View, **size: int) -> list[str]:
    lines = picture(view, **size)
    begin = next(number for number, line in enumerate(lines) if line.startswith("AGE "))
    return [re.sub(" +", " ", line) for line in lines[begin + 1 :]]


def test_events_are_in_the_order_of_their_writes_without_those_of_other_kinds() -> None:
    events = (event("second", version=100), event("first", version=99), event("a node's", subject="node/web"))
    assert [line.split()[-1] for line in lines_of_events(View(events=events))] == ["first", "second"]


SET = "virtualmachineinstancereplicaset/web"


@pytest.mark.parametrize(
    ("shown", "width", "line"),
    [
        (event("one"), 120, "2m vmpool/web SuccessfulCreate one"),
        (event("two", subject=SET, Count="3"), 120, "2m x3 vmirs/web SuccessfulCreate two"),
        (event("one"), 80, "2m vmpool/web one"),
        (event("not [bold]so[/bold]"), 120, "2m vmpool/web SuccessfulCreate not [bold]so[/bold]"),
    ],
)
def test_an_event_is_shown_with_its_age_its_count_its_object_and_its_message(shown: Row, width: int, line: str) -> None:
    assert lines_of_events(View(events=(shown,)), width=width) == [line]


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize(("number", "height"), [(0, 24), (4, 24), (30, 24), (30, 50)])
def test_the_output_fits_the_terminal(number: int, height: int, width: int) -> None:
    lines = picture(of_everything(number), width=width, height=height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_a_vm_that_is_not_ready_is_shown_before_vms_that_are_ready() -> None:
    view = of_everything(60)
    broken = vm("pool-57", Ready="False", Status="CrashLoopBackOff")
    lines = picture(View(owners=view.owners, vms=(*view.vms[:57], broken), vmis=view.vmis), width=80, height=18)
    assert [line for line in lines if line.startswith("pool-57") and "CrashLoopBackOff" in line]
    assert len([line for line in lines if re.match(r"and \d+ more", line)]) == 2


def test_rows_that_do_not_fit_are_counted() -> None:
    lines = picture(View(vms=of_everything(30).vms), height=24)
    shown = len([line for line in lines if line.startswith("pool-")])
    assert shown
    assert [line.strip() for line in lines if "more" in line] == [f"and {30 - shown} more"]


KUBECONFIG = Path("/tmp/vmherd-demo-abcdefgh/kubeconfig")
ALL_KEYS = {*EXPERIMENTS, *OTHER_KEYS}


def hints(report: Report | None = None, *, width: int = 80, height: int = 24) -> list[str]:
    return draw_hints(report or Report(), width=width, height=height, kubeconfig=KUBECONFIG).plain.splitlines()


def keys_in(lines: list[str]) -> set[str]:
    return set(re.findall(r"(?:^|  )(\w) (?=\w)", "\n".join(lines), re.MULTILINE))


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (40, 24), (200, 60)])
def test_all_keys_and_the_kubeconfig_are_shown(width: int, height: int) -> None:
    lines = hints(width=width, height=height)
    assert keys_in(lines) >= ALL_KEYS
    assert max(map(len, lines)) <= width
    assert lines[-1].startswith("export KUBECONFIG=/tmp/vmherd-demo-")


@pytest.mark.parametrize("line", ["5: let the pool replace each VM", "3: " + "a long line " * 30])
def test_the_command_is_always_shown(line: str) -> None:
    shown = hints(Report(line=line, commands=EXPERIMENTS["4"].commands))
    command = next(each for each in shown if each.startswith("$ kubectl patch vmpool"))
    assert not command.endswith("...")


def test_a_failure_and_waiting_experiments_are_shown() -> None:
    assert hints(Report(line="6 detach failed", error="not found"))[1] == "6 detach failed: not found"
    running = Report(line="1: scale", running=True, waiting=("2 update", "7 undo"))
    assert hints(running)[1] == "1: scale ... (next: 2 update, 7 undo)"


@pytest.mark.parametrize("rows", [0, 5, 500])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (80, 10)])
def test_the_screen_has_the_height_of_the_terminal_and_ends_with_the_hints(rows: int, width: int, height: int) -> None:
    text = Text("\n").join(Text(f"row {number}") for number in range(rows))
    drawn = draw_hints(Report(), width=width, height=height, kubeconfig=KUBECONFIG)
    shown = printed(Screen(screen(text, drawn)), width=width, height=height, end="")
    lines = [line.rstrip() for line in shown.split("\n")]
    assert len(lines) == height
    bottom = hints(width=width, height=height)
    assert lines[-len(bottom) :] == bottom


def test_the_lines_to_paste_have_every_experiment_and_the_missing_path() -> None:
    lines = lines_to_paste(KUBECONFIG, "/opt/bin", 8080)
    assert f'export KUBECONFIG={KUBECONFIG} PATH="$PATH:/opt/bin"' in lines
    assert all(shlex.join(command) in lines for each in EXPERIMENTS.values() for command in each.commands)
    assert lines[-1] == "Metrics are at http://127.0.0.1:8080/metrics."


def test_an_update_repairs_a_bad_image() -> None:
    def annotations(key: str) -> dict[str, str | None]:
        change = json.loads(EXPERIMENTS[key].commands[0][-1])
        found = change["spec"]["virtualMachineTemplate"]["spec"]["template"]["metadata"]["annotations"]
        return dict(found)

    assert [annotations("2")[name] for name in annotations("4")] == [None]
