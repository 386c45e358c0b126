"""The experiments of the demo: they look at the objects first, and a second press does nothing."""

from collections.abc import Mapping
from typing import Any

import pytest

from controller.kinds import REPLICA_SETS
from controller.kubevirt.annotations import REPLACE_UNREADY_AFTER
from sandbox.demo.experiments import EXPERIMENTS, POOL_NAME, SET_NAME, Command, Step
from sandbox.demo.tables import View
from tests.sandbox.demo.objects import owner, vm

SLOW, BAD, HANGS = (
    {"sim.vmherd.dev/ready-after": "2s"},
    {"sim.vmherd.dev/behavior": "image-error"},
    {"sim.vmherd.dev/behavior": "never-ready"},
)


def pool(
    *, template: Mapping[str, str] | None = None, size: int = 4, rev: int = 1, old: int = 0, heals: bool = False
) -> dict[str, Any]:
    revisions = {"updateRevision": f"{POOL_NAME}-{rev}", "currentRevision": f"{POOL_NAME}-{old or rev}"}
    built = owner(POOL_NAME, "u-pool", desired=size, **revisions)
    metadata = {} if template is None else {"metadata": {"annotations": dict(template)}}
    built["spec"]["virtualMachineTemplate"] = {"spec": {"template": metadata}}
    built["metadata"]["annotations"] = {REPLACE_UNREADY_AFTER: "5"} if heals else {}
    return built


def replica_set(size: int = 3) -> dict[str, Any]:
    return owner(SET_NAME, "u-set", kind=REPLICA_SETS, desired=size)


def member(number: int, *, annotations: Mapping[str, str] | None = None, **more: Any) -> dict[str, Any]:
    built = vm(f"{POOL_NAME}-{number}", **more)
    built["spec"] = {"template": {"metadata": {"annotations": dict(annotations)} if annotations else {}}}
    return built


def view(*vms: dict[str, Any], size: int = 3, **of_pool: Any) -> View:
    members = vms or tuple(member(number) for number in range(4))
    return View(owners=(replica_set(size), pool(**of_pool)), vms=members)


def decide(key: str, now: View) -> Step:
    return EXPERIMENTS[key].decide(now)


def words(commands: tuple[Command, ...]) -> list[str]:
    return [" ".join(command[1:4]) for command in commands]


SCALE_POOL = ("kubectl", "scale", "vmpool", POOL_NAME, "--replicas", "6")


@pytest.mark.parametrize(
    ("key", "now", "commands"),
    [
        ("1", view(), (("kubectl", "scale", "vmirs", SET_NAME, "--replicas", "5"), SCALE_POOL)),
        ("1", view(size=5), (SCALE_POOL,)),
        ("6", view(), (("kubectl", "vmherd", "detach", f"vm/{POOL_NAME}-2"),)),
        ("6", view(member(0), member(4)), (("kubectl", "vmherd", "detach", f"vm/{POOL_NAME}-4"),)),
    ],
)
def test_scale_and_detach_change_what_exists(key: str, now: View, commands: tuple[Command, ...]) -> None:
    assert decide(key, now).commands == commands


@pytest.mark.parametrize(
    ("key", "before", "annotations"),
    [
        ("2", None, '{"sim.vmherd.dev/ready-after":"2s"}'),
        ("2", BAD, '{"sim.vmherd.dev/ready-after":"2s","sim.vmherd.dev/behavior":null}'),
        ("4", SLOW, '{"sim.vmherd.dev/behavior":"image-error"}'),
    ],
)
def test_update_and_bad_image_change_the_template_of_the_pool(
    key: str, before: Mapping[str, str] | None, annotations: str
) -> None:
    [command] = decide(key, view(template=before)).commands
    assert command[-1].endswith(f'{{"annotations":{annotations}}}}}}}}}}}}}')


def test_break_changes_one_vm_of_the_pool_and_starts_the_vm_again() -> None:
    assert words(decide("3", view()).commands) == [f"patch vm {POOL_NAME}-1", f"delete vmi {POOL_NAME}-1"]


@pytest.mark.parametrize("gone", [{"controller": None}, {"leaving": True}])
def test_break_takes_the_last_vm_if_the_usual_vm_is_gone(gone: dict[str, Any]) -> None:
    vms = (member(10), member(9), member(1, **gone))
    assert words(decide("3", view(*vms)).commands)[0] == f"patch vm {POOL_NAME}-10"


@pytest.mark.parametrize("heals", [True, False])
def test_break_says_whether_the_pool_replaces_the_vm(heals: bool) -> None:
    assert ("replaces it soon" in decide("3", view(heals=heals)).line) is heals


def test_break_of_a_broken_vm_says_what_heals_it() -> None:
    vms = (member(0), member(1, annotations=HANGS))
    assert decide("3", view(*vms)).line.endswith("; 5 heals it")
    assert decide("3", view(*vms, heals=True)).line.endswith("; the pool replaces it soon")


def test_heal_names_the_vm_that_the_pool_replaces_first() -> None:
    step = decide("5", view(member(0), member(1, annotations=HANGS)))
    assert step.line.endswith(f": {POOL_NAME}-1 first")
    assert step.commands[0][-1] == f"{REPLACE_UNREADY_AFTER}=5"


@pytest.mark.parametrize(
    ("newest", "oldest", "target"),
    [
        (3, 1, 1),  # an update from 1 to 3
        (4, 3, 3),  # a bad image after a complete update
        (3, 3, 1),  # a complete update
        (3, 4, 1),  # the undo of a bad image, still in progress
    ],
)
def test_undo_returns_to_the_revision_before(newest: int, oldest: int, target: int) -> None:
    [command] = decide("7", view(rev=newest, old=oldest)).commands
    assert command[-1] == f"--to-revision={target}"


def test_undo_of_the_first_revision_has_nothing_to_do_even_while_vms_are_newer() -> None:
    assert decide("7", view(rev=1, old=4)).commands == ()


def test_reset_undoes_all_experiments() -> None:
    vms = (member(1, annotations=HANGS), member(2, controller=None))
    step = decide("0", view(*vms, size=5, template=SLOW, heals=True))
    assert words(step.commands) == [
        "apply -f " + step.commands[0][3],
        f"patch vmpool {POOL_NAME}",
        "annotate --overwrite vmpool",
        f"delete vm {POOL_NAME}-2",
    ]
    assert step.commands[3][3:5] == (f"{POOL_NAME}-2", f"{POOL_NAME}-1")


def test_reset_creates_a_pool_that_was_deleted() -> None:
    assert words(decide("0", View(owners=(replica_set(),))).commands)[0].startswith("apply -f")


@pytest.mark.parametrize(
    ("key", "after"),
    [
        ("1", View(owners=(replica_set(5), pool(size=6)))),
        ("2", view(template=SLOW)),
        ("3", view(member(0), member(1, annotations=HANGS))),
        ("3", View(owners=(pool(),))),
        ("4", view(template=BAD)),
        ("5", view(heals=True)),
        ("6", view(member(0), member(2, controller=None))),
        ("6", View(owners=(pool(),))),
        ("7", view()),
        ("0", view()),
    ],
)
def test_an_experiment_whose_change_is_made_has_nothing_to_do(key: str, after: View) -> None:
    step = decide(key, after)
    assert step.commands == ()
    assert step.line.startswith("nothing to ")


@pytest.mark.parametrize("key", "234567")
def test_without_the_pool_an_experiment_says_how_to_create_it(key: str) -> None:
    assert decide(key, View()) == Step(f"nothing to do: vmpool/{POOL_NAME} does not exist; 0 creates it")


def test_the_keys_are_1_to_7_and_0() -> None:
    assert list(EXPERIMENTS) == list("12345670")
    assert all(each.lines and each.purpose and key == each.key for key, each in EXPERIMENTS.items())
