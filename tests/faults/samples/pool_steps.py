"""The steps of the scenarios of pools: what users do, and the conditions that must follow."""

from typing import Any

from tests.controlplane import documents
from tests.faults.resources import CLAIMS, POOLS, VMIS, VMS, VOLUMES
from tests.faults.samples.objects import Json, Objects, status_of
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
) -> Json:
    """A VM template. With `disk`, each VM has a DataVolume of this size and this access mode."""
    template = documents.vm_template(
        memory=memory,
        vmi_annotations=QUICK,
        vmi_spec={"terminationGracePeriodSeconds": 0},
        disks=("root",) if disk else (),
        runStrategy="Always",
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


def ordinals(*numbers: int) -> Condition:
    """Exactly the VMs with these ordinals exist. No VMI has another name."""
    names = {f"pool-{number}" for number in numbers}
    return lambda objects: set(objects[VMS]) == names and set(objects[VMIS]) <= names


def disks(*names: str, free: tuple[str, ...] = ()) -> Condition:
    """Exactly these DataVolumes and PVCs exist. The disks in `free` have no VM as an owner."""

    def holds(objects: Objects) -> bool:
        loose = {name for name, volume in objects[VOLUMES].items() if not documents.owner_uid(volume)}
        return set(objects[VOLUMES]) == set(objects[CLAIMS]) == set(names) and loose == set(free)

    return holds


def claims(value: str, *names: str) -> Condition:
    """Each of these PVCs has this access mode, or requests this size."""

    def holds(objects: Objects) -> bool:
        specs = [objects[CLAIMS][name]["spec"] for name in names if name in objects[CLAIMS]]
        found = [value in (*spec["accessModes"], spec["resources"]["requests"]["storage"]) for spec in specs]
        return len(found) == len(names) and all(found)

    return holds


def change_template(template: Json) -> Any:
    steps = [{"op": "replace", "path": "/spec/virtualMachineTemplate", "value": template}]
    return lambda user: user.patch(POOLS, "pool", steps)


def memory_is(memory: str, *names: str) -> Condition:
    """The specs of these VMs have this memory."""

    def holds(objects: Objects) -> bool:
        found = [objects[VMS][name] for name in names if name in objects[VMS]]
        return len(found) == len(names) and all(memory_of(vm["spec"]["template"]) == memory for vm in found)

    return holds


def running_with(memory: str, *names: str) -> Condition:
    def holds(objects: Objects) -> bool:
        found = [objects[VMIS][name] for name in names if name in objects[VMIS]]
        return len(found) == len(names) and all(memory_of(vmi) == memory and documents.is_ready(vmi) for vmi in found)

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


def healed(objects: Objects) -> bool:
    """The recreated VM has no simulated failure."""
    vm = objects[VMS].get("pool-1")
    return vm is not None and BEHAVIOR not in vm["spec"]["template"]["metadata"]["annotations"]
