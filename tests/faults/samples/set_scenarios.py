"""The scenarios of replica sets."""

from typing import Any

from tests.controlplane.documents import SET_LABELS, memory_of_vmis, set_document, vmi_document
from tests.faults.resources import SETS, VMIS
from tests.faults.samples.objects import Json, Objects, references_of
from tests.faults.samples.scenarios import BEHAVIOR, QUICK, Condition, Step, scenario
from tests.faults.samples.steps import (
    BUDGET,
    READY_NOTE,
    RETURN_NOTE,
    RETURNS,
    Owner,
    both,
    created,
    deletions,
    draining,
    has_drained,
    keeps_budget,
    memory_of,
)
from tests.faults.samples.view import User

HERD = Owner(SETS, VMIS, "herd")
at, change = HERD.at, HERD.change
ROLLING = "vmherd.dev/rolling-update"


VMI_SPEC = {**memory_of_vmis("64M"), "terminationGracePeriodSeconds": 0}


def herd(replicas: int, *, annotations: dict[str, str] | None = None) -> tuple[str, Json]:
    notes = {"annotations": annotations or {}}
    return SETS, set_document(replicas, spec=VMI_SPEC, template_metadata={"annotations": QUICK}, metadata=notes)


def begun(memory: str) -> Condition:
    """A VMI with this memory exists."""

    def holds(objects: Objects) -> bool:
        return memory in map(memory_of, objects[VMIS].values())

    return holds


def change_template(memory: str) -> Any:
    return HERD.change(template={"spec": memory_of_vmis(memory)})


async def break_template(user: User) -> None:
    broken = {"metadata": {"annotations": {BEHAVIOR: "never-ready"}}, "spec": memory_of_vmis("128M")}
    await user.patch(SETS, "herd", {"spec": {"template": broken}})


def _first(user: User) -> str:
    return min(user.objects.alive(VMIS))


async def _relabel(user: User) -> None:
    await user.patch(VMIS, _first(user), {"metadata": {"labels": {"app": "other"}}})


async def _give_back(user: User) -> None:
    [name] = [n for n, vmi in user.objects.alive(VMIS).items() if vmi["metadata"]["labels"]["app"] == "other"]
    await user.patch(VMIS, name, {"metadata": {"labels": SET_LABELS}})


async def _fail_one(user: User) -> None:
    status = {"phase": "Failed", "conditions": [{"type": "Ready", "status": "False", "reason": "PodTerminating"}]}
    await user.patch(VMIS, _first(user), {"status": status})


async def _delete_one(user: User) -> None:
    await user.delete(VMIS, _first(user))


async def _mark_two(user: User) -> None:
    first, second, *_ = sorted(user.objects.alive(VMIS))
    await user.patch(VMIS, first, {"metadata": {"annotations": {"vmherd.dev/remove": "true"}}})
    await user.patch(VMIS, second, {"metadata": {"annotations": {"vmherd.dev/protect": "true"}}})
    await user.patch(SETS, "herd", {"spec": {"replicas": 2}})


STRAY = vmi_document("stray", spec=VMI_SPEC, annotations=QUICK)


def detached(count: int) -> Condition:
    """The set has its VMIs, and one further VMI has no owner."""

    def holds(objects: Objects) -> bool:
        free = [vmi for vmi in objects.alive(VMIS).values() if not references_of(vmi)]
        return at(count)(objects) and len(free) == 1 and len(objects[VMIS]) == count + 1

    return holds


def total(count: int) -> Condition:
    return lambda objects: len(objects[VMIS]) == count


SET_SCENARIOS = (
    scenario("set-create", None, None, Step(created(herd(3)), at(3))),
    scenario("set-adopt", None, None, Step(created((VMIS, STRAY), herd(3)), both(at(3), total(3)))),
    scenario("set-scale-up", herd(1), at(1), Step(change(replicas=4), at(4))),
    scenario("set-scale-down", herd(4), at(4), Step(change(replicas=1), at(1))),
    scenario(
        "set-scale-down-drain",
        herd(3, annotations={"vmherd.dev/drain-seconds": "900"}),
        at(3),
        Step(change(replicas=1), draining(VMIS, 2)),
        Step(has_drained(VMIS), at(1)),
    ),
    keeps_budget(HERD, "set-scale-budget", herd(2, annotations=BUDGET)),
    scenario("set-scale-to-zero", herd(3), at(3), Step(change(replicas=0), at(0))),
    scenario("set-scale-in-marks", herd(4), at(4), Step(_mark_two, both(at(2), total(2))), compared=False),
    scenario(
        "set-template",
        herd(2),
        at(2),
        Step(change_template("128M"), at(2, updated=0)),
        Step(change(replicas=4), at(4, updated=2)),
    ),
    scenario(
        "set-rolling-update",
        herd(3, annotations={ROLLING: "maxUnavailable=1"}),
        at(3),
        Step(change_template("128M"), at(3)),
    ),
    scenario(
        "set-surge",
        herd(3, annotations={ROLLING: "maxSurge=1,maxUnavailable=0"}),
        at(3),
        Step(change_template("128M"), at(3)),
    ),
    scenario(
        "set-rollback",
        herd(3, annotations={ROLLING: "maxUnavailable=1", **RETURNS}),
        both(at(3), HERD.noted(READY_NOTE)),
        Step(break_template, both(at(3, updated=0), HERD.noted(RETURN_NOTE))),
    ),
    scenario(
        "set-undo",
        herd(3, annotations={ROLLING: "maxUnavailable=1"}),
        at(3),
        Step(change_template("128M"), begun("128M")),
        Step(change_template("64M"), at(3)),
        counted=False,
    ),
    scenario(
        "set-pause",
        herd(2),
        at(2),
        Step(change(paused=True, replicas=3), HERD.paused()),
        Step(change(paused=False), both(at(3), HERD.paused(is_paused=False))),
    ),
    scenario("set-heal", herd(3), at(3), Step(_fail_one, both(at(3), total(3)))),
    scenario("set-vmi-deleted", herd(3), at(3), Step(_delete_one, both(at(3), total(3)))),
    scenario("set-detach", herd(2), at(2), Step(_relabel, detached(2))),
    scenario(
        "set-detach-and-return", herd(2), at(2), Step(_relabel, detached(2)), Step(_give_back, both(at(2), total(2)))
    ),
    *deletions(HERD, "set-delete-{}", herd(3), at(3), 3),
)
