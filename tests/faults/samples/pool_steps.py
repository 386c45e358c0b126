"""The steps of the scenarios of pools: what users do, and the conditions that must follow."""

from typing import Any

from controller.kubevirt.annotations import BUSY_UNTIL, POOL_FINALIZER, SUBSTITUTE
from tests.controlplane import documents
from tests.faults.resources import CLAIMS, POOLS, VMIS, VMS, VOLUMES
from tests.faults.samples.objects import (
    FAR,
    Json,
    Objects,
    annotations_of,
    controller_uid,
    finalizers_of,
    is_ready,
    references_of,
    status_of,
)
from tests.faults.samples.scenarios import BEHAVIOR, QUICK, Condition
from tests.faults.samples.steps import Owner, memory_of
from tests.faults.samples.view import User

POOL = Owner(POOLS, VMS, "pool")
DESCENDING = {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}
OFFLINE = {"proactive": {"statePreservation": "Offline", **DESCENDING}}
PROACTIVE = {"proactive": DESCENDING}
ASCENDING_UPDATE = {"proactive": {"selectionPolicy": {"sortPolicy": "AscendingOrder"}}}


def vm_template(
    memory: str = "64M",
    *,
    disk: str = "",
    mode: str = "ReadWriteOnce",
    labels: dict[str, str] | None = None,
    strategy: str = "Always",
    behavior: str = "",
) -> Json:
    """A VM template. With `disk`, each VM has a DataVolume of this size and this access mode. `behavior` is that of the
    simulated guests.
    """
    annotations = {**QUICK, **({BEHAVIOR: behavior} if behavior else {})}
    more: Json = {"memory": memory, "vmi_spec": {"terminationGracePeriodSeconds": 0}, "runStrategy": strategy}
    template = documents.vm_template(
        labels=labels,
        vmi_annotations=annotations,
        disks=("root",) if disk else (),
        **more,
    )
    if disk:
        volume = documents.data_volume_template("root", size=disk, accessModes=[mode])
        volume["metadata"]["annotations"] = QUICK
        template["spec"]["dataVolumeTemplates"] = [volume]
    return template


def pool(
    replicas: int, *, template: Json | None = None, annotations: dict[str, str] | None = None, **spec: Any
) -> tuple[str, Json]:
    policies: Json = {"maxUnavailable": 1, "scaleInStrategy": PROACTIVE, "updateStrategy": ASCENDING_UPDATE, **spec}
    metadata = {"annotations": annotations or {}}
    return POOLS, documents.pool_document(replicas, template=template or vm_template(), metadata=metadata, **policies)


def vms(*names: str) -> Condition:
    """Exactly these VMs exist. No VMI has another name."""
    return lambda objects: set(objects[VMS]) == set(names) and set(objects[VMIS]) <= set(names)


def ordinals(*numbers: int) -> Condition:
    return vms(*(f"pool-{number}" for number in numbers))


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


def placed(template: Json) -> Json:
    """The template with a node selector, which KubeVirt gives to running VMIs."""
    template["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/os": "linux"}
    return template


async def mark_instances(user: User) -> None:
    """Mark each VMI. A restarted VM has a VMI without the mark."""
    for name in user.objects.alive(VMIS):
        await user.patch(VMIS, name, {"metadata": {"annotations": {"first": "true"}}})


def never_restarted(objects: Objects) -> bool:
    """Each VMI has its mark, and the node selector of the new template."""
    vmis = objects[VMIS].values()
    return all("first" in annotations_of(vmi) and "nodeSelector" in vmi["spec"] for vmi in vmis)


def change_template(template: Json) -> Any:
    steps = [{"op": "replace", "path": "/spec/virtualMachineTemplate", "value": template}]
    return lambda user: user.patch(POOLS, "pool", steps)


def busy(name: str) -> Any:
    """Mark the VM as busy for longer than the test."""
    return lambda user: user.patch(VMS, name, {"metadata": {"annotations": {BUSY_UNTIL: FAR}}})


def delete_vm(name: str, propagation: str = "Background") -> Any:
    return lambda user: user.delete(VMS, name, propagation)


def delete_vmi(name: str) -> Any:
    return lambda user: user.delete(VMIS, name)


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


async def break_vm(user: User) -> None:
    """Make the VM's next VMIs fail. A VM that the pool recreates has no failure."""
    annotations = {BEHAVIOR: "fail", "sim.vmherd.dev/time-scale": "0.05"}
    changed = await user.patch(VMS, "pool-1", {"spec": {"template": {"metadata": {"annotations": annotations}}}})
    generation = changed["metadata"]["generation"]

    def seen(objects: Objects) -> bool:
        return status_of(objects[VMS]["pool-1"]).get("desiredGeneration", 0) >= generation

    assert await user.view.until(user.namespace, seen, within_s=10), "the simulator does not see the new spec"
    await user.delete(VMIS, "pool-1")


async def finish_vm(user: User) -> None:
    """Let the guest of a VM end. The VM that takes its place has no mark."""
    await user.patch(VMS, "pool-1", {"metadata": {"annotations": {"old": "true"}}})
    ends = {BEHAVIOR: "finish", "sim.vmherd.dev/time-scale": "0.05"}
    await user.patch(VMIS, "pool-1", {"metadata": {"annotations": ends}})


def lose(name: str) -> Any:
    """Let the node of a VM stop to answer."""
    return lambda user: user.patch(VMIS, name, {"metadata": {"annotations": {BEHAVIOR: "lost"}}})


def is_regular(name: str) -> Condition:
    """The VM exists, and is no substitute."""
    return lambda objects: name in objects[VMS] and SUBSTITUTE not in annotations_of(objects[VMS][name])


def replaced(objects: Objects) -> bool:
    vm = objects[VMS].get("pool-1")
    return vm is not None and "old" not in vm["metadata"].get("annotations", {})


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
        return vm is not None and not references_of(vm) and POOL_FINALIZER not in finalizers_of(vm)

    return holds
