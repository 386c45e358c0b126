"""The scenarios of replica sets."""

from typing import Any

from tests.controlplane.documents import memory_of_vmis, set_document, vmi_document
from tests.faults.resources import SETS, VMIS
from tests.faults.samples import steps
from tests.faults.samples.objects import Json
from tests.faults.samples.scenarios import BEHAVIOR, QUICK, Condition, Step, scenario
from tests.faults.samples.view import User

HERD = steps.Owner(SETS, VMIS, "herd")
at, change = HERD.at, HERD.change
ROLLING = "vmherd.dev/rolling-update"


VMI_SPEC = {**memory_of_vmis("64M"), "terminationGracePeriodSeconds": 0}


def herd(replicas: int, *, annotations: dict[str, str] | None = None) -> tuple[str, Json]:
    notes = {"annotations": annotations or {}}
    return SETS, set_document(replicas, spec=VMI_SPEC, template_metadata={"annotations": QUICK}, metadata=notes)


def change_template(memory: str) -> Any:
    return HERD.change(template={"spec": memory_of_vmis(memory)})


async def break_template(user: User) -> None:
    broken = {"metadata": {"annotations": {BEHAVIOR: "never-ready"}}, "spec": memory_of_vmis("128M")}
    await user.patch(SETS, "herd", {"spec": {"template": broken}})


STRAY = vmi_document("stray", spec=VMI_SPEC, annotations=QUICK)


def total(count: int) -> Condition:
    return lambda objects: len(objects[VMIS]) == count


SET_SCENARIOS = (
    scenario("set-create", None, None, Step(steps.created(herd(3)), at(3))),
    scenario("set-adopt", None, None, Step(steps.created((VMIS, STRAY), herd(3)), steps.both(at(3), total(3)))),
    scenario("set-scale-down", herd(4), at(4), Step(change(replicas=1), at(1))),
    steps.keeps_budget(HERD, "set-scale-budget", herd(2, annotations=steps.BUDGET)),
    scenario(
        "set-rolling-update",
        herd(3, annotations={ROLLING: "maxUnavailable=1"}),
        at(3),
        Step(change_template("128M"), at(3)),
    ),
    scenario(
        "set-rollback",
        herd(3, annotations={ROLLING: "maxUnavailable=1", **steps.RETURNS}),
        steps.both(at(3), HERD.noted(steps.READY_NOTE)),
        Step(break_template, steps.both(at(3, updated=0), HERD.noted(steps.RETURN_NOTE))),
    ),
)
