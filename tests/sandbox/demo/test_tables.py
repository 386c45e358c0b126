"""The demo's tables: they fit into the terminal and show all objects."""

import re

import pytest
from rich.console import Console

from sandbox.demo.tables import Row, View, draw, rows_of
from tests.sandbox.demo.objects import event, owner, set_vmi, vm, vmi


def picture(view: View, *, width: int = 120, height: int = 50) -> list[str]:
    console = Console(width=width, height=height, force_terminal=False)
    with console.capture() as capture:
        console.print(draw(view, width=width, height=height))
    return [line.rstrip() for line in capture.get().splitlines()]


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
