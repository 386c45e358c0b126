"""The demo's tables: they fit into the terminal and show all objects."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from controller.kinds import POOLS, REPLICA_SETS, Kind
from sandbox.demo.tables import View, age, draw, share
from tests.sandbox.demo.objects import counts, event, owner, set_vmi, vm, vmi

NOW = datetime(2026, 1, 1, 0, 2, tzinfo=UTC)


def picture(view: View, *, width: int = 120, height: int = 50) -> list[str]:
    console = Console(width=width, height=height, force_terminal=False)
    with console.capture() as capture:
        console.print(draw(view, width=width, height=height, now=NOW))
    return [line.rstrip() for line in capture.get().splitlines()]


def row(view: View, beginning: str) -> str:
    [line] = [line for line in picture(view) if line.startswith(beginning)]
    return re.sub(" +", " ", line).strip()


def of_everything(number: int) -> View:
    names = [f"pool-{ordinal}" for ordinal in range(number)]
    return View(
        owners=(owner("set", "u-set", kind=REPLICA_SETS), owner("pool", "u-pool")),
        vms=tuple(map(vm, names)),
        vmis=(*map(vmi, names), *(set_vmi(f"test{ordinal}") for ordinal in range(number))),
        events=tuple(event(f"Created a virtual machine with a name as long as this line: {name}") for name in names),
    )


FAILURE = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}
PROGRESS = {"type": "Reconciling", "status": "True", "reason": "Updating"}
BEHIND = {"replicas": 4, "readyReplicas": 3, "updatedReplicas": 2}
UPDATING = {**counts(3), "printableStatus": "Updating", "conditions": [PROGRESS], "problem": "web-1: ErrImagePull"}


@pytest.mark.parametrize(
    ("status", "kind", "shown"),
    [
        ({"desired": 5, **BEHIND, "printableStatus": "Updating"}, POOLS, "vmpool/web 5 4 3 2 Updating"),
        ({**counts(3), "conditions": [FAILURE]}, REPLICA_SETS, "vmirs/web 3 3 3 3 ReplicaFailure (FailedCreate)"),
        (UPDATING, POOLS, "vmpool/web 3 3 3 3 Updating web-1: ErrImagePull"),
    ],
)
def test_an_owner_is_shown_with_its_counts_its_word_its_conditions_and_its_first_problem(
    status: dict[str, Any], kind: Kind[Any], shown: str
) -> None:
    assert row(View(owners=(owner("web", "u", kind=kind, **status),)), shown.split(maxsplit=1)[0]) == shown


@pytest.mark.parametrize(
    ("subject", "of_vmi", "shown"),
    [
        (vm("web-0", "web-1"), "web-1", "web-0 Running True 1 Running uid-web-"),
        (vm("web-0", "web-2"), "web-1", "web-0 Running True 2 (VMI: 1) Running uid-web-"),
        (vm("web-0", "named-by-others"), "named-by-others", "web-0 Running True named-by-others Running uid-web-"),
        (vm("web-0", controller=None), "pool-1", "web-0 (detached) Running True 1 Running uid-web-"),
        (vm("web-0", leaving=True), "pool-1", "web-0 Terminating False 1 Running uid-web-"),
    ],
)
def test_a_vm_is_shown_with_its_status_and_its_revision(subject: dict[str, Any], of_vmi: str, shown: str) -> None:
    assert row(View(vms=(subject,), vmis=(vmi("web-0", of_vmi),)), "web-0") == shown


def test_vms_are_in_the_order_of_their_numbers() -> None:
    lines = picture(View(vms=tuple(vm(name) for name in ("web-10", "web-9", "web-2", "lonely"))))
    names = [line.split()[0] for line in lines if "Running" in line]
    assert names == ["lonely", "web-2", "web-9", "web-10"]


def test_a_vmi_of_a_vm_is_not_listed_a_second_time() -> None:
    view = View(vms=(vm("web-0"),), vmis=(vmi("web-0"), set_vmi("test1")))
    assert len([line for line in picture(view) if line.startswith("web-0")]) == 1
    assert row(view, "test1") == "test1 Running True"


def lines_of_events(view: View, **size: int) -> list[str]:
    lines = picture(view, **size)
    begin = next(number for number, line in enumerate(lines) if line.startswith("AGE "))
    return [re.sub(" +", " ", line) for line in lines[begin + 1 :]]


SECOND = "2026-01-01T00:00:02Z"


@pytest.mark.parametrize(
    "events",
    [
        (event("second", at=SECOND), event("first", at="2026-01-01T00:00:01Z"), event("a node's", kind="Node")),
        (event("second", metadata={"resourceVersion": "100"}), event("first", metadata={"resourceVersion": "99"})),
    ],
)
def test_events_are_in_the_order_of_their_writes_without_those_of_other_kinds(events: tuple[Any, ...]) -> None:
    assert [line.split()[-1] for line in lines_of_events(View(events=events))] == ["first", "second"]


SET = "VirtualMachineInstanceReplicaSet"


@pytest.mark.parametrize(
    ("shown", "width", "line"),
    [
        (event("one", at="2026-01-01T00:00:30Z"), 120, "1m vmpool/web SuccessfulCreate one"),
        (event("two", at="2026-01-01T00:01:48Z", count=3, kind=SET), 120, "12s x3 vmirs/web SuccessfulCreate two"),
        (event("one"), 80, "2m vmpool/web one"),
        (event("not [bold]so[/bold]"), 120, "2m vmpool/web SuccessfulCreate not [bold]so[/bold]"),
    ],
)
def test_an_event_is_shown_with_its_age_its_count_its_object_and_its_message(shown: Any, width: int, line: str) -> None:
    assert lines_of_events(View(events=(shown,)), width=width) == [line]


@pytest.mark.parametrize(
    ("then", "shown"),
    [
        ("2026-01-01T00:01:59Z", "1s"),
        ("2026-01-01T00:01:00Z", "1m"),
        ("2025-12-31T20:02:00.000000Z", "4h"),
        ("2026-01-01T00:02:09Z", "0s"),
        ("", ""),
    ],
)
def test_an_age_has_one_unit(then: str, shown: str) -> None:
    assert age(then, NOW) == shown


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize(("number", "height"), [(0, 24), (4, 24), (30, 24), (30, 50)])
def test_the_output_fits_the_terminal(number: int, height: int, width: int) -> None:
    lines = picture(of_everything(number), width=width, height=height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_the_examples_fit_a_small_terminal_whole() -> None:
    view = of_everything(4)
    shown = View(owners=view.owners, vms=view.vms, vmis=view.vmis[:7], events=view.events)
    lines = picture(shown, width=80, height=18)
    assert len(lines) == 18
    assert not [line for line in lines if "more" in line]
    assert len(lines_of_events(shown, width=80, height=18)) == 2


def test_a_vm_that_is_not_ready_is_shown_before_vms_that_are_ready() -> None:
    view = of_everything(60)
    broken = vm("pool-57", ready=False, status="CrashLoopBackOff")
    lines = picture(View(owners=view.owners, vms=(*view.vms[:57], broken), vmis=view.vmis), width=80, height=18)
    assert [line for line in lines if line.startswith("pool-57") and "CrashLoopBackOff" in line]
    assert len([line for line in lines if re.match(r"and \d+ more", line)]) == 2


def test_rows_that_do_not_fit_are_counted() -> None:
    lines = picture(View(vms=of_everything(30).vms), height=24)
    shown = len([line for line in lines if line.startswith("pool-")])
    assert shown
    assert [line.strip() for line in lines if "more" in line] == [f"and {30 - shown} more"]


def test_a_server_that_does_not_answer_is_reported() -> None:
    assert picture(View(error="connection refused")) == ["no answer from the API server: connection refused"]


@pytest.mark.parametrize(
    ("free", "wanted", "dealt"),
    [
        (10, (4, 3, 8), [4, 3, 3]),
        (9, (9, 9, 9), [3, 3, 3]),
        (4, (9, 9, 9), [2, 1, 1]),
        (99, (1, 0, 2), [1, 0, 2]),
        (-3, (1, 1, 1), [0, 0, 0]),
    ],
)
def test_free_lines_are_distributed_one_by_one(free: int, wanted: tuple[int, ...], dealt: list[int]) -> None:
    assert share(free, wanted) == dealt
