"""The scenarios of replica sets."""

from __future__ import annotations

from typing import Any

from tests.faults.objects import SETS, VMIS, Json, Objects, has_condition, is_ready, status_of
from tests.faults.scenarios import QUICK, Condition, Scenario, Step
from tests.faults.view import User

LABELS = {"app": "herd"}
ROLLING = "vmherd.dev/rolling-update"


def vmi_template(memory: str = "64M", **annotations: str) -> Json:
    spec = {"domain": {"resources": {"requests": {"memory": memory}}}, "terminationGracePeriodSeconds": 0}
    return {"metadata": {"labels": LABELS, "annotations": {**QUICK, **annotations}}, "spec": spec}


def herd(replicas: int, *, annotations: dict[str, str] | None = None, **spec: Any) -> tuple[str, Json]:
    body = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": "herd", "annotations": annotations or {}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": LABELS},
            "template": vmi_template(),
            **spec,
        },
    }
    return SETS, body


def at(replicas: int, *, updated: int | None = None) -> Condition:
    """The set has this number of ready VMIs and no others, and its status says so."""

    def holds(objects: Objects) -> bool:
        owner = objects[SETS].get("herd")
        if owner is None:
            return False
        status, mine = status_of(owner), objects.owned(VMIS, owner)
        counts = (
            status.get("replicas", 0),
            status.get("readyReplicas", 0),
            len(mine),
            sum(map(is_ready, mine.values())),
        )
        return (
            counts == (replicas,) * 4
            and not has_condition(owner, "ReplicaFailure")
            and status.get("observedGeneration") == owner["metadata"]["generation"]
            and status.get("updatedReplicas", 0) == (replicas if updated is None else updated)
        )

    return holds


def both(*conditions: Condition) -> Condition:
    return lambda objects: all(holds(objects) for holds in conditions)


def paused(*, is_paused: bool = True) -> Condition:
    def holds(objects: Objects) -> bool:
        owner = objects[SETS].get("herd")
        return owner is not None and has_condition(owner, "ReplicaPaused") == is_paused

    return holds


def nothing_left(objects: Objects) -> bool:
    return not objects[SETS] and not objects[VMIS]


def orphans(count: int) -> Condition:
    """The set is gone, and its VMIs have no owner."""

    def holds(objects: Objects) -> bool:
        left = objects.alive(VMIS).values()
        return not objects[SETS] and len(left) == count and not any(v["metadata"].get("ownerReferences") for v in left)

    return holds


def begun(memory: str) -> Condition:
    """A VMI with this memory exists."""

    def holds(objects: Objects) -> bool:
        found = [vmi["spec"]["domain"]["resources"]["requests"]["memory"] for vmi in objects[VMIS].values()]
        return memory in found

    return holds


def change(**spec: Any) -> Any:
    return lambda user: user.patch(SETS, "herd", {"spec": spec})


def change_template(memory: str) -> Any:
    return change(template={"spec": {"domain": {"resources": {"requests": {"memory": memory}}}}})


def delete(propagation: str) -> Any:
    return lambda user: user.delete(SETS, "herd", propagation)


def _first(user: User) -> str:
    return min(user.objects.alive(VMIS))


async def _relabel(user: User) -> None:
    await user.patch(VMIS, _first(user), {"metadata": {"labels": {"app": "other"}}})


async def _give_back(user: User) -> None:
    [name] = [n for n, vmi in user.objects.alive(VMIS).items() if vmi["metadata"]["labels"]["app"] == "other"]
    await user.patch(VMIS, name, {"metadata": {"labels": LABELS}})


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


async def _orphan_before(user: User) -> None:
    body = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "stray", **vmi_template()["metadata"]},
        "spec": vmi_template()["spec"],
    }
    await user.create(VMIS, body)
    await user.create(*herd(3))


def detached(count: int) -> Condition:
    """The set has its VMIs, and one further VMI has no owner."""

    def holds(objects: Objects) -> bool:
        free = [vmi for vmi in objects.alive(VMIS).values() if not vmi["metadata"].get("ownerReferences")]
        return at(count)(objects) and len(free) == 1 and len(objects[VMIS]) == count + 1

    return holds


def total(count: int) -> Condition:
    return lambda objects: len(objects[VMIS]) == count


async def _create(user: User) -> None:
    await user.create(*herd(3))


SET_SCENARIOS = (
    Scenario(name="set-create", steps=(Step(_create, at(3)),)),
    Scenario(name="set-adopt", steps=(Step(_orphan_before, both(at(3), total(3))),)),
    Scenario(name="set-scale-up", given=(herd(1),), ready=at(1), steps=(Step(change(replicas=4), at(4)),)),
    Scenario(name="set-scale-down", given=(herd(4),), ready=at(4), steps=(Step(change(replicas=1), at(1)),)),
    Scenario(name="set-scale-to-zero", given=(herd(3),), ready=at(3), steps=(Step(change(replicas=0), at(0)),)),
    Scenario(
        name="set-scale-in-marks",
        given=(herd(4),),
        ready=at(4),
        steps=(Step(_mark_two, both(at(2), total(2))),),
        compared=False,
    ),
    Scenario(
        name="set-template",
        given=(herd(2),),
        ready=at(2),
        steps=(
            Step(change_template("128M"), at(2, updated=0)),
            Step(change(replicas=4), at(4, updated=2)),
        ),
    ),
    Scenario(
        name="set-rolling-update",
        given=(herd(3, annotations={ROLLING: "maxUnavailable=1"}),),
        ready=at(3),
        steps=(Step(change_template("128M"), at(3)),),
    ),
    Scenario(
        name="set-undo",
        given=(herd(3, annotations={ROLLING: "maxUnavailable=1"}),),
        ready=at(3),
        steps=(
            Step(change_template("128M"), begun("128M")),
            Step(change_template("64M"), at(3)),
        ),
    ),
    Scenario(
        name="set-pause",
        given=(herd(2),),
        ready=at(2),
        steps=(
            Step(change(paused=True, replicas=3), paused()),
            Step(change(paused=False), both(at(3), paused(is_paused=False))),
        ),
    ),
    Scenario(name="set-heal", given=(herd(3),), ready=at(3), steps=(Step(_fail_one, both(at(3), total(3))),)),
    Scenario(name="set-vmi-deleted", given=(herd(3),), ready=at(3), steps=(Step(_delete_one, both(at(3), total(3))),)),
    Scenario(name="set-detach", given=(herd(2),), ready=at(2), steps=(Step(_relabel, detached(2)),)),
    Scenario(
        name="set-detach-and-return",
        given=(herd(2),),
        ready=at(2),
        steps=(Step(_relabel, detached(2)), Step(_give_back, both(at(2), total(2)))),
    ),
    *(
        Scenario(
            name=f"set-delete-{propagation.lower()}",
            given=(herd(3),),
            ready=at(3),
            steps=(Step(delete(propagation), orphans(3) if propagation == "Orphan" else nothing_left),),
        )
        for propagation in ("Foreground", "Background", "Orphan")
    ),
)
