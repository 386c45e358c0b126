"""A small load: users create, scale, update and delete sets and pools, and delete their VMs.

Each deleted set or pool is replaced by another, so their number stays constant. If a figure still grows during the run,
the controller has a leak. `tests/simulation` has users who do anything.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from random import Random
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from benchmarks.cluster import Cluster
from benchmarks.objects import OBJECTS
from controller import kinds
from controller.kubevirt.resources import VMIS, VMS
from informers.resource import Resource
from sandbox.admin import Rejected, Unanswered
from sandbox.settings import BEHAVIOR, TIME_SCALE

Kind: TypeAlias = Literal["set", "pool"]

OWNERS: Final[Mapping[Kind, Resource[Any]]] = {
    "set": kinds.REPLICA_SETS.resource(),
    "pool": kinds.POOLS.resource(),
}
MACHINES: Final[Mapping[Kind, Resource[Any]]] = {"set": VMIS, "pool": VMS}
APP: Final = "app"


class Herd(Struct):
    """One replica set or pool of the load.

    If `sick` is True, the VMs fail again and again, so the set or pool never becomes ready.
    """

    kind: Kind
    namespace: str
    name: str
    replicas: int
    sick: bool = False
    memory: int = 64

    @property
    def path(self) -> str:
        return OWNERS[self.kind].path(self.namespace, self.name)

    @property
    def template_field(self) -> str:
        return "template" if self.kind == "set" else "virtualMachineTemplate"

    def template(self) -> dict[str, Any]:
        labels = {APP: self.name}
        vmi: dict[str, Any] = {
            "metadata": {"labels": labels},
            "spec": {"domain": {"resources": {"requests": {"memory": f"{self.memory}M"}}}},
        }
        if self.sick:
            vmi["metadata"]["annotations"] = {BEHAVIOR: "crash-loop", TIME_SCALE: "0.05"}
        if self.kind == "set":
            return vmi
        return {"metadata": {"labels": labels}, "spec": {"runStrategy": "Always", "template": vmi}}

    def manifest(self) -> dict[str, Any]:
        document = deepcopy(OBJECTS[f"soak {self.kind}"])
        document["metadata"]["name"] = self.name
        document["spec"] |= {
            "replicas": self.replicas,
            "selector": {"matchLabels": {APP: self.name}},
            self.template_field: self.template(),
        }
        return document


NAMESPACES: Final = ("soak-0", "soak-1", "soak-2")
SETS, POOLS = 12, 8
MOST_REPLICAS: Final = 10
EXPECTED: Final = (404, 409, 422, 429, 500, 503, 504)
"""The expected error codes of an operation. The object may be gone, or the API server may be restarting."""


class Load:
    """The state of the load. `done` counts the operations by name. `failed` counts the operations without success, by
    name and cause.
    """

    def __init__(self, api: Cluster, chance: Random) -> None:
        self.herds: list[Herd] = []
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self._api = api
        self._chance = chance
        self._created = 0
        self._operations: dict[Callable[[], None], int] = {
            self._scale: 10,
            self._lose_machine: 8,
            self._update: 3,
            self._replace: 3,
        }

    def fill(self) -> None:
        for namespace in NAMESPACES:
            self._api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        for number in range(SETS):
            self._create("set", sick=not number)
        for number in range(POOLS):
            self._create("pool", sick=not number)

    def step(self) -> str:
        """Carry out one random operation and return its name."""
        [operation] = self._chance.choices(list(self._operations), weights=list(self._operations.values()))
        name = operation.__name__.strip("_")
        try:
            operation()
        except Unanswered:
            self.failed[f"{name}: no answer"] += 1
        except Rejected as error:
            if error.status not in EXPECTED:
                raise
            self.failed[f"{name}: {error.status}"] += 1
        else:
            self.done[name] += 1
        return name

    def heal(self) -> None:
        """Delete the sets and pools whose VMs always fail, so that each of the others can become complete."""
        for herd in [each for each in self.herds if each.sick]:
            self._api.delete(herd.path)
            self.herds.remove(herd)

    def differences(self) -> list[str]:
        """Return the sets and pools whose machines or status do not match their spec."""
        found = []
        for herd in self.herds:
            status = self._api.get(herd.path).get("status") or {}
            counts = [status.get(name, 0) for name in ("replicas", "readyReplicas", "updatedReplicas")]
            members = len(self._members(herd))
            if members != herd.replicas or counts != [herd.replicas] * 3:
                found.append(f"{herd.kind} {herd.name}: {herd.replicas} wanted, {members} exist, status {counts}")
        return found

    def empty(self) -> None:
        """Delete all objects of the load."""
        for herd in self.herds:
            self._try_delete(herd.path)
        self.herds.clear()

    def left(self) -> int:
        """Return the number of objects that still exist."""
        paths = [each.path(namespace) for namespace in NAMESPACES for each in (*OWNERS.values(), VMIS, VMS)]
        return sum(len(self._api.items(path)) for path in paths)

    def _create(self, kind: Kind, *, sick: bool = False) -> None:
        self._created += 1
        herd = Herd(
            kind=kind,
            namespace=self._chance.choice(NAMESPACES),
            name=f"{kind}-{self._created}",
            replicas=2 if sick else self._chance.randint(0, MOST_REPLICAS),
            sick=sick,
        )
        self._api.create(OWNERS[kind].path(herd.namespace), herd.manifest())
        self.herds.append(herd)

    def _pick(self) -> Herd:
        return self._chance.choice(self.herds)

    def _scale(self) -> None:
        herd = self._pick()
        replicas = 2 if herd.sick else self._chance.randint(0, MOST_REPLICAS)
        self._api.patch(herd.path, {"spec": {"replicas": replicas}})
        herd.replicas = replicas

    def _update(self) -> None:
        herd = self._pick()
        herd.memory = self._chance.randint(64, 512)
        self._api.patch(herd.path, {"spec": {herd.template_field: herd.template()}})

    def _replace(self) -> None:
        """Delete a set or pool, and create another one with a new name."""
        herd = self._pick()
        self._api.delete(herd.path, self._chance.choice(("Background", "Foreground")))
        self.herds.remove(herd)
        self._create(herd.kind, sick=herd.sick)

    def _lose_machine(self) -> None:
        herd = self._pick()
        if members := self._members(herd):
            name = self._chance.choice(members)["metadata"]["name"]
            self._api.delete(MACHINES[herd.kind].path(herd.namespace, name))

    def _try_delete(self, path: str) -> None:
        try:
            self._api.delete(path)
        except Rejected as error:
            if error.status != 404:
                raise

    def _members(self, herd: Herd) -> list[dict[str, Any]]:
        path = f"{MACHINES[herd.kind].path(herd.namespace, '')}?labelSelector={APP}%3D{herd.name}"
        return [item for item in self._api.items(path) if "deletionTimestamp" not in item["metadata"]]
