"""The random load: users create, scale, update, pause and delete sets and pools, and break their VMs.

Each deleted set or pool is replaced by another, so their number stays constant. If a figure still grows during the run,
the controller has a leak.
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
from controller.kubevirt.resources import DATA_VOLUMES, PVCS, VMIS, VMS
from informers.resource import Resource
from sandbox.admin import Rejected, Unanswered
from sandbox.settings import BEHAVIOR, TIME_SCALE

Kind: TypeAlias = Literal["set", "pool"]

OWNERS: Final[Mapping[Kind, Resource[Any]]] = {
    "set": kinds.REPLICA_SETS.resource(),
    "pool": kinds.POOLS.resource(),
}
MACHINES: Final[Mapping[Kind, Resource[Any]]] = {"set": VMIS, "pool": VMS}
OWNED: Final = (VMIS, VMS, DATA_VOLUMES, PVCS)
APP: Final = "app"


class Herd(Struct):
    """One replica set or pool of the load.

    If `sick` is True, the VMs fail again and again, so the set or pool never becomes ready.
    """

    kind: Kind
    namespace: str
    name: str
    replicas: int
    disks: bool = False
    sick: bool = False
    memory: int = 64
    paused: bool = False

    @property
    def path(self) -> str:
        return OWNERS[self.kind].path(self.namespace, self.name)

    def machine(self, name: str) -> str:
        """Return the path of a VM of the pool or of a VMI of the set, or of all of them if the name is ""."""
        return MACHINES[self.kind].path(self.namespace, name)

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
        vm: dict[str, Any] = {"runStrategy": "Always", "template": vmi}
        if self.disks:
            disk = f"{self.name}-root"
            vmi["spec"]["volumes"] = [{"name": "root", "dataVolume": {"name": disk}}]
            vmi["spec"]["domain"]["devices"] = {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}
            claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            vm["dataVolumeTemplates"] = [{"metadata": {"name": disk}, "spec": {"pvc": claim, "source": {"blank": {}}}}]
        return {"metadata": {"labels": labels}, "spec": vm}

    def manifest(self) -> dict[str, Any]:
        document = deepcopy(OBJECTS[f"soak {self.kind}"])
        document["metadata"]["name"] = self.name
        document["spec"] |= {
            "replicas": self.replicas,
            "paused": self.paused,
            "selector": {"matchLabels": {APP: self.name}},
            self.template_field: self.template(),
        }
        if self.disks:
            document["spec"]["scaleInStrategy"] = {"proactive": {"statePreservation": "Offline"}}
        return document


NAMESPACES: Final = ("soak-0", "soak-1", "soak-2")
SETS, POOLS = 12, 8
MOST_REPLICAS: Final = 10
MOST_PAUSED: Final = 2
BROKEN: Final = ("fail", "finish", "unknown", "never-ready")
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
            self._break_machine: 6,
            self._update: 3,
            self._replace: 3,
            self._adopt: 2,
            self._release: 2,
            self._pause_or_resume: 2,
            self._sweep: 2,
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
        """Undo what the load has disturbed, so that each set and pool can become complete.

        Delete the sets and pools whose VMs always fail (`Herd.sick`).
        """
        for herd in list(self.herds):
            if herd.sick:
                self._api.delete(herd.path)
                self.herds.remove(herd)
            elif herd.paused:
                self._pause(herd, paused=False)
        for namespace in NAMESPACES:
            for vmi in self._api.items(VMIS.path(namespace)):
                if BEHAVIOR in (vmi["metadata"].get("annotations") or {}):
                    self._try_delete(VMIS.path(namespace, vmi["metadata"]["name"]))
        self._sweep()

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
        self._sweep()

    def left(self) -> int:
        """Return the number of objects that still exist."""
        self._sweep()
        paths = [each.path(namespace) for namespace in NAMESPACES for each in (*OWNERS.values(), *OWNED)]
        return sum(len(self._api.items(path)) for path in paths)

    def _create(self, kind: Kind, *, sick: bool = False) -> None:
        self._created += 1
        herd = Herd(
            kind=kind,
            namespace=self._chance.choice(NAMESPACES),
            name=f"{kind}-{self._created}",
            replicas=2 if sick else self._chance.randint(0, MOST_REPLICAS),
            disks=kind == "pool" and self._chance.random() < 0.3,
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
        """Delete a set or pool with a random propagation policy. Create another set or pool with a new name."""
        herd = self._pick()
        self._api.delete(herd.path, self._chance.choice(("Background", "Foreground", "Orphan")))
        self.herds.remove(herd)
        self._create(herd.kind, sick=herd.sick)

    def _adopt(self) -> None:
        """Delete a set or pool but keep its machines, and create it again with the same name and selector."""
        herd = self._pick()
        self._api.delete(herd.path, "Orphan")
        self.herds.remove(herd)
        for _ in range(20):
            try:
                self._api.create(OWNERS[herd.kind].path(herd.namespace), herd.manifest())
            except Rejected as error:
                if error.status != 409:
                    raise
            else:
                self.herds.append(herd)
                return
        self._create(herd.kind, sick=herd.sick)

    def _pause_or_resume(self) -> None:
        paused = [herd for herd in self.herds if herd.paused]
        if len(paused) >= MOST_PAUSED:
            self._pause(paused[0], paused=False)
        else:
            self._pause(self._pick(), paused=True)

    def _pause(self, herd: Herd, *, paused: bool) -> None:
        self._api.patch(herd.path, {"spec": {"paused": paused}})
        herd.paused = paused

    def _lose_machine(self) -> None:
        herd = self._pick()
        if member := self._member(herd):
            self._api.delete(herd.machine(member))

    def _break_machine(self) -> None:
        """Give the VMI of a machine one of the behaviors `BROKEN`."""
        herd = self._pick()
        if member := self._member(herd):
            behavior = self._chance.choice(BROKEN if herd.kind == "pool" else BROKEN[:2])
            change = {"metadata": {"annotations": {BEHAVIOR: behavior}}}
            self._api.patch(VMIS.path(herd.namespace, member), change)

    def _release(self) -> None:
        """Remove the label of a machine, so that its set or pool releases it."""
        herd = self._pick()
        if member := self._member(herd):
            self._api.patch(herd.machine(member), {"metadata": {"labels": {APP: None}}})

    def _sweep(self) -> None:
        """Delete the machines without an owner, and the disks of pools that no longer exist."""
        known = {herd.name for herd in self.herds}
        for namespace in NAMESPACES:
            for resource in OWNED:
                for item in self._api.items(resource.path(namespace)):
                    meta = item["metadata"]
                    herd = (meta.get("labels") or {}).get(APP) or meta["name"].partition("-root")[0]
                    if not meta.get("ownerReferences") and herd not in known:
                        self._try_delete(resource.path(namespace, meta["name"]))

    def _try_delete(self, path: str) -> None:
        try:
            self._api.delete(path)
        except Rejected as error:
            if error.status != 404:
                raise

    def _members(self, herd: Herd) -> list[dict[str, Any]]:
        return [
            item
            for item in self._api.items(f"{herd.machine('')}?labelSelector={APP}%3D{herd.name}")
            if "deletionTimestamp" not in item["metadata"] and item["metadata"].get("ownerReferences")
        ]

    def _member(self, herd: Herd) -> str:
        """Return the name of a random machine of the set or pool, or "" if there is none."""
        members = self._members(herd)
        return str(self._chance.choice(members)["metadata"]["name"]) if members else ""
