"""The steps of the scenarios of pools: what users do, and the conditions that must follow."""

from __future__ import annotations

from typing import Any

from tests.faults.objects import (
    CLAIMS,
    POOLS,
    VMIS,
    VMS,
    VOLUMES,
    Json,
    Objects,
    controller_uid,
    has_condition,
    is_ready,
    status_of,
)
from tests.faults.scenarios import BEHAVIOR, QUICK, Condition
from tests.faults.view import User

LABELS = {"app": "pool"}
FINALIZER = "pool.kubevirt.io/finalizer"
DESCENDING = {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}
OFFLINE = {"proactive": {"statePreservation": "Offline", **DESCENDING}}
PROACTIVE = {"proactive": DESCENDING}
ASCENDING_UPDATE = {"proactive": {"selectionPolicy": {"sortPolicy": "AscendingOrder"}}}


def vm_template(
    memory: str = "64M", *, disk: str = "", mode: str = "ReadWriteOnce", labels: Json | None = None, **annotations: str
) -> Json:
    """A VM template. With `disk`, each VM has a DataVolume of this size and this access mode."""
    volumes = [{"name": "root", "dataVolume": {"name": "root"}}] if disk else []
    vmi: Json = {
        "metadata": {"labels": LABELS, "annotations": {**QUICK, **annotations}},
        "spec": {
            "domain": {
                "resources": {"requests": {"memory": memory}},
                "devices": {"disks": [{"name": volume["name"], "disk": {"bus": "virtio"}} for volume in volumes]},
            },
            "terminationGracePeriodSeconds": 0,
            "volumes": volumes,
        },
    }
    spec: Json = {"runStrategy": "Always", "template": vmi}
    if disk:
        claim = {"accessModes": [mode], "resources": {"requests": {"storage": disk}}}
        metadata = {"name": "root", "annotations": QUICK}
        spec["dataVolumeTemplates"] = [{"metadata": metadata, "spec": {"pvc": claim, "source": {"blank": {}}}}]
    return {"metadata": {"labels": {**LABELS, **(labels or {})}}, "spec": spec}


def pool(
    replicas: int, *, template: Json | None = None, annotations: dict[str, str] | None = None, **spec: Any
) -> tuple[str, Json]:
    body = {
        "apiVersion": "pool.kubevirt.io/v1beta1",
        "kind": "VirtualMachinePool",
        "metadata": {"name": "pool", "annotations": annotations or {}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": LABELS},
            "virtualMachineTemplate": template or vm_template(),
            "maxUnavailable": 1,
            "scaleInStrategy": PROACTIVE,
            "updateStrategy": ASCENDING_UPDATE,
            **spec,
        },
    }
    return POOLS, body


def at(replicas: int, *, updated: int | None = None) -> Condition:
    """The pool has this number of ready VMs and no others, all up to date, and its status says so."""

    def holds(objects: Objects) -> bool:
        owner = objects[POOLS].get("pool")
        if owner is None:
            return False
        status, mine = status_of(owner), objects.owned(VMS, owner)
        ready = [name for name, vm in mine.items() if is_ready(vm) and is_ready(objects[VMIS].get(name, {}))]
        counts = (status.get("replicas", 0), status.get("readyReplicas", 0), len(mine), len(ready))
        return (
            counts == (replicas,) * 4
            and objects.alive(VMS).keys() >= mine.keys()
            and not has_condition(owner, "ReplicaFailure")
            and status.get("observedGeneration") == owner["metadata"]["generation"]
            and status.get("updatedReplicas", 0) == (replicas if updated is None else updated)
        )

    return holds


def both(*conditions: Condition) -> Condition:
    return lambda objects: all(holds(objects) for holds in conditions)


def vms(*names: str) -> Condition:
    """Exactly these VMs exist. No VMI has another name."""
    return lambda objects: set(objects[VMS]) == set(names) and set(objects[VMIS]) <= set(names)


def ordinals(*numbers: int) -> Condition:
    return vms(*(f"pool-{number}" for number in numbers))


def paused(*, is_paused: bool = True) -> Condition:
    def holds(objects: Objects) -> bool:
        owner = objects[POOLS].get("pool")
        return owner is not None and has_condition(owner, "ReplicaPaused") == is_paused

    return holds


def disks(*names: str, free: tuple[str, ...] = ()) -> Condition:
    """Exactly these DataVolumes and PVCs exist. The disks in `free` have no VM as an owner."""

    def holds(objects: Objects) -> bool:
        loose = {name for name, volume in objects[VOLUMES].items() if not controller_uid(volume)}
        return set(objects[VOLUMES]) == set(objects[CLAIMS]) == set(names) and loose == set(free)

    return holds


def claims(value: str, *names: str) -> Condition:
    """Each of these PVCs has this access mode, or requests this size."""

    def holds(objects: Objects) -> bool:
        specs = [objects[CLAIMS][name]["spec"] for name in names if name in objects[CLAIMS]]
        found = [value in (*spec["accessModes"], spec["resources"]["requests"]["storage"]) for spec in specs]
        return len(found) == len(names) and all(found)

    return holds


def nothing_left(objects: Objects) -> bool:
    return not objects[POOLS] and not objects[VMS] and not objects[VMIS]


def orphans(count: int) -> Condition:
    """The pool is gone, and its VMs have no owner and no finalizer of the pool."""

    def holds(objects: Objects) -> bool:
        left = objects.alive(VMS).values()
        bound = [vm for vm in left if vm["metadata"].get("ownerReferences") or has_finalizer(vm)]
        return not objects[POOLS] and len(left) == count and not bound

    return holds


def has_finalizer(item: Json) -> bool:
    return FINALIZER in (item["metadata"].get("finalizers") or ())


def change(**spec: Any) -> Any:
    return lambda user: user.patch(POOLS, "pool", {"spec": spec})


def change_template(template: Json) -> Any:
    steps = [{"op": "replace", "path": "/spec/virtualMachineTemplate", "value": template}]
    return lambda user: user.patch(POOLS, "pool", steps)


def annotate(key: str, value: str) -> Any:
    return lambda user: user.patch(POOLS, "pool", {"metadata": {"annotations": {key: value}}})


def delete(propagation: str) -> Any:
    return lambda user: user.delete(POOLS, "pool", propagation)


def delete_vm(name: str, propagation: str = "Background") -> Any:
    return lambda user: user.delete(VMS, name, propagation)


def delete_vmi(name: str) -> Any:
    return lambda user: user.delete(VMIS, name)


def created(*objects: tuple[str, Json]) -> Any:
    async def act(user: User) -> None:
        for plural, body in objects:
            await user.create(plural, body)

    return act


def memory_is(memory: str, *names: str) -> Condition:
    """The specs of these VMs have this memory."""

    def holds(objects: Objects) -> bool:
        found = [objects[VMS][name] for name in names if name in objects[VMS]]
        return len(found) == len(names) and all(memory_of(vm["spec"]["template"]) == memory for vm in found)

    return holds


def running_with(memory: str, *names: str) -> Condition:
    def holds(objects: Objects) -> bool:
        found = [objects[VMIS][name] for name in names if name in objects[VMIS]]
        return len(found) == len(names) and all(memory_of(vmi) == memory and is_ready(vmi) for vmi in found)

    return holds


def memory_of(vmi: Json) -> str:
    memory: str = vmi["spec"]["domain"]["resources"]["requests"]["memory"]
    return memory


async def break_vm(user: User) -> None:
    """Make the VM's next VMIs fail. A VM that the pool recreates has no failure."""
    annotations = {BEHAVIOR: "fail", "sim.vmherd.dev/time-scale": "0.05"}
    changed = await user.patch(VMS, "pool-1", {"spec": {"template": {"metadata": {"annotations": annotations}}}})
    generation = changed["metadata"]["generation"]

    def seen(objects: Objects) -> bool:
        return status_of(objects[VMS]["pool-1"]).get("desiredGeneration", 0) >= generation

    assert await user.view.until(user.namespace, seen, within_s=10), "the simulator does not see the new spec"
    await user.delete(VMIS, "pool-1")


def healed(objects: Objects) -> bool:
    """The recreated VM has no simulated failure."""
    vm = objects[VMS].get("pool-1")
    return vm is not None and BEHAVIOR not in vm["spec"]["template"]["metadata"]["annotations"]


def remove_owner(name: str) -> Any:
    return lambda user: user.patch(VMS, name, {"metadata": {"ownerReferences": None}})


def relabel(name: str) -> Any:
    return lambda user: user.patch(VMS, name, {"metadata": {"labels": {"app": "other"}}})


def detached(name: str) -> Condition:
    """The VM has neither the pool's ownerReference nor its finalizer."""

    def holds(objects: Objects) -> bool:
        vm = objects[VMS].get(name)
        return vm is not None and not vm["metadata"].get("ownerReferences") and not has_finalizer(vm)

    return holds
