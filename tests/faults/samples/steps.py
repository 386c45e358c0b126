"""The steps and the conditions of the scenarios of both kinds."""

from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from controller.kubevirt.annotations import DRAINED, DRAINING, POOL_FINALIZER
from tests.controlplane.documents import condition_of, finalizers_of, is_ready
from tests.faults.resources import BUDGETS, VMIS, VMS
from tests.faults.samples.objects import Json, Objects, annotations_of, references_of, status_of
from tests.faults.samples.scenarios import Act, Condition, Scenario, Step, scenario
from tests.faults.samples.view import User

BUDGET: Final = {"vmherd.dev/disruption-budget": "1"}
RETURNS: Final = {"vmherd.dev/rollback": "stalled", "vmherd.dev/progress-deadline-seconds": "3"}
READY_NOTE: Final = "vmherd.dev/ready-revision"
RETURN_NOTE: Final = "vmherd.dev/rolled-back"


class Owner(Struct, frozen=True):
    """The set or the pool of a scenario, and the resource of its members."""

    plural: str
    members: str
    name: str

    def at(self, replicas: int, *, updated: int | None = None) -> Condition:
        """The owner has this number of ready members and no others, all up to date, and its status says so."""

        def holds(objects: Objects) -> bool:
            owner = objects[self.plural].get(self.name)
            if owner is None:
                return False
            status, mine = status_of(owner), objects.owned(self.members, owner)
            ready = [name for name, item in mine.items() if is_ready(item) and is_ready(objects[VMIS].get(name, {}))]
            counts = (status.get("replicas", 0), status.get("readyReplicas", 0), len(mine), len(ready))
            return (
                counts == (replicas,) * 4
                and objects.alive(self.members).keys() >= mine.keys()
                and condition_of(owner, "ReplicaFailure") is None
                and status.get("observedGeneration") == owner["metadata"]["generation"]
                and status.get("updatedReplicas", 0) == (replicas if updated is None else updated)
            )

        return holds

    def gone(self, orphans: int = 0) -> Condition:
        """The owner is gone. So many members are left, with no owner and no finalizer of the pool."""

        def holds(objects: Objects) -> bool:
            left = objects.alive(self.members).values()
            bound = [item for item in left if references_of(item) or POOL_FINALIZER in finalizers_of(item)]
            nothing = not orphans and (objects[VMS] or objects[VMIS])
            return not objects[self.plural] and len(left) == orphans and not bound and not nothing

        return holds

    def noted(self, annotation: str) -> Condition:
        """The owner has this annotation."""

        def holds(objects: Objects) -> bool:
            owner = objects[self.plural].get(self.name)
            return owner is not None and annotation in annotations_of(owner)

        return holds

    def change(self, **spec: Any) -> Act:
        return lambda user: user.patch(self.plural, self.name, {"spec": spec})

    def annotate(self, key: str, value: str | None) -> Act:
        return lambda user: user.patch(self.plural, self.name, {"metadata": {"annotations": {key: value}}})

    def delete(self, propagation: str) -> Act:
        return lambda user: user.delete(self.plural, self.name, propagation)


def deletions(owner: Owner, name: str, given: tuple[str, Json], ready: Condition, count: int) -> Iterator[Scenario]:
    """The owner is deleted with each propagation policy."""
    for propagation in ("Foreground", "Background", "Orphan"):
        step = Step(owner.delete(propagation), owner.gone(count if propagation == "Orphan" else 0))
        yield scenario(name.format(propagation.lower()), given, ready, step)


def draining(plural: str, number: int) -> Condition:
    """This number of VMs or VMIs has the mark of a drain."""
    return lambda objects: len(_draining(objects, plural)) == number


def has_drained(plural: str) -> Act:
    """Answer for each VM or VMI that drains."""

    async def act(user: User) -> None:
        for name in _draining(user.objects, plural):
            await user.patch(plural, name, {"metadata": {"annotations": {DRAINED: "true"}}})

    return act


def _draining(objects: Objects, plural: str) -> list[str]:
    return sorted(name for name, each in objects.alive(plural).items() if DRAINING in annotations_of(each))


def keeps_budget(owner: Owner, name: str, given: tuple[str, Json]) -> Scenario:
    """The disruption budget of an owner with two members follows its size, and comes back if a user deletes it."""

    def at(replicas: int, *least: int) -> Condition:
        return both(owner.at(replicas), lambda objects: _least(objects) == least)

    return scenario(
        name,
        given,
        at(2, 1),
        Step(owner.change(replicas=4), at(4, 3)),
        Step(_delete_budgets, at(4, 3)),
        Step(owner.change(replicas=1), at(1, 0)),
        Step(owner.annotate(*BUDGET, None), at(1)),
    )


def _least(objects: Objects) -> tuple[int, ...]:
    return tuple(each["spec"]["minAvailable"] for each in objects.alive(BUDGETS).values())


async def _delete_budgets(user: User) -> None:
    for name in user.objects.alive(BUDGETS):
        await user.delete(BUDGETS, name)


def both(*conditions: Condition) -> Condition:
    return lambda objects: all(holds(objects) for holds in conditions)


def created(*objects: tuple[str, Json]) -> Act:
    async def act(user: User) -> None:
        for plural, body in objects:
            await user.create(plural, body)

    return act


def memory_of(vmi: Json) -> str:
    memory: str = vmi["spec"]["domain"]["resources"]["requests"]["memory"]
    return memory
