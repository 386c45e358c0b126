"""Cases about the disks that a pool makes, changed disk templates, and VMs that must not be deleted."""

from conformance.api import owners_of, require, uids_by_name
from conformance.case import Cases, Document, Kind, Origin, Requirement
from conformance.cases.pool_healing import until_failing
from conformance.cases.pool_scaling import proactive
from conformance.cases.shared_scaling import annotate, made_at
from conformance.namespace import BOOT_S
from conformance.pools import Pools
from conformance.templates import FAILING, FAILING_DISK, data_volume_template

cases: Cases[Pools] = Cases(Kind.POOLS)
NEEDS = (Requirement.CDI,)
KEPT = {"proactive": {**proactive("DescendingOrder")["proactive"], "statePreservation": "Offline"}}


async def with_disks(pools: Pools, replicas: int, **spec: Document) -> dict[str, Document]:
    """Create a pool with one disk for each VM. Return the DataVolumes when all of them exist."""
    await pools.made(replicas, template=pools.template(disks=["data"]), **spec)
    wanted = {f"data-{ordinal}" for ordinal in range(replicas)}
    return await pools.until(
        f"the DataVolumes {', '.join(sorted(wanted))}",
        pools.data_volumes,
        lambda seen: seen.keys() == wanted and all(map(owners_of, seen.values())),
        within_s=BOOT_S,
    )


@cases.add("P5", requires=NEEDS)
async def disk_names(pools: Pools) -> None:
    """Each VM has a disk of its own, whose name ends with the ordinal."""
    await with_disks(pools, 2)
    for ordinal in (0, 1):
        spec = (await pools.vm(f"pool-{ordinal}"))["spec"]
        names = [each["metadata"]["name"] for each in spec["dataVolumeTemplates"]]
        volumes = [each["dataVolume"]["name"] for each in spec["template"]["spec"]["volumes"] if "dataVolume" in each]
        require(f"the disk data-{ordinal}", names == volumes == [f"data-{ordinal}"], [*names, *volumes])


@cases.add("P10", requires=NEEDS)
async def disk_deleted(pools: Pools) -> None:
    """Without statePreservation, a scale-in deletes the disk."""
    await with_disks(pools, 2, scaleInStrategy=proactive("DescendingOrder"))
    await pools.scale(1)
    await pools.until_names(0)
    await pools.until("only data-0", pools.data_volumes, lambda seen: [*seen] == ["data-0"], within_s=BOOT_S)


@cases.add("P10", requires=NEEDS)
async def disk_preserved(pools: Pools) -> None:
    """With statePreservation Offline, a scale-in keeps the disk."""
    before = await with_disks(pools, 2, scaleInStrategy=KEPT)
    await pools.scale(1)
    await pools.until_names(0)
    await pools.until("no VM pool-1", pools.vms, lambda seen: "pool-1" not in seen, within_s=BOOT_S)
    uid = before["data-1"]["metadata"]["uid"]
    await pools.stays(
        "the disk data-1 without an owner",
        pools.data_volumes,
        lambda seen: "data-1" in seen and seen["data-1"]["metadata"]["uid"] == uid and not owners_of(seen["data-1"]),
    )


@cases.add("P10", requires=NEEDS)
async def disk_reused(pools: Pools) -> None:
    """With statePreservation Offline, the next VM of the ordinal gets the disk."""
    before = await with_disks(pools, 2, scaleInStrategy=KEPT)
    await pools.scale(1)
    await pools.until("no VM pool-1", pools.vms, lambda seen: "pool-1" not in seen, within_s=BOOT_S)
    await pools.scale(2)
    vm = (await pools.until_names(0, 1))["pool-1"]
    uid = before["data-1"]["metadata"]["uid"]
    await pools.until(
        "the earlier disk data-1 with the new VM as its owner",
        pools.data_volumes,
        lambda seen: (
            "data-1" in seen
            and seen["data-1"]["metadata"]["uid"] == uid
            and [owner["uid"] for owner in owners_of(seen["data-1"])] == [vm["metadata"]["uid"]]
        ),
    )


@cases.add("P33", origin=Origin.VMHERD, requires=NEEDS)
async def claim_disk(pools: Pools) -> None:
    """When a claim ends, the disk of the VM is deleted, also with statePreservation Offline."""
    before = await with_disks(pools, 1, scaleInStrategy=KEPT)
    ended = {"vmherd.dev/claimed-by": "job", "vmherd.dev/claimed-until": await made_at(pools, "pool-0")}
    await annotate(pools, "pool-0", ended)
    await pools.until(
        "a new disk data-0 or another disk in its place",
        pools.data_volumes,
        lambda seen: len(seen) == 1 and not uids_by_name(before).items() & uids_by_name(seen).items(),
        within_s=BOOT_S,
    )


@cases.add("P10", requires=NEEDS)
async def disk_delete_vm(pools: Pools) -> None:
    """A VM that is deleted in the foreground comes back with a new disk."""
    before = await with_disks(pools, 2)
    vms = await pools.members()
    await pools.delete_vm("pool-0", "Foreground")
    await pools.until(
        "a new disk data-0",
        pools.data_volumes,
        lambda seen: len(seen) == 2 and is_new(seen, before, "data-0") and not is_new(seen, before, "data-1"),
        within_s=BOOT_S,
    )
    now = await pools.until_names(0, 1)
    require("a new VM pool-0", is_new(now, vms, "pool-0"), now)
    require("that pool-1 stays", not is_new(now, vms, "pool-1"), now)


@cases.add("P6", requires=NEEDS)
async def disk_delete_pool(pools: Pools) -> None:
    """If a pool is deleted, the disks of its VMs are deleted."""
    await with_disks(pools, 1)
    await pools.delete()
    await pools.until_equal("no VM", pools.vms, {}, within_s=BOOT_S)
    await pools.until_equal("no DataVolume", pools.data_volumes, {}, within_s=BOOT_S)


def is_new(now: dict[str, Document], before: dict[str, Document], name: str) -> bool:
    return name in now and now[name]["metadata"]["uid"] != before[name]["metadata"]["uid"]


PROTECTED = {"vmherd.dev/protect": "True"}
UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


async def made_with_disk(pools: Pools, template: Document | None = None, **spec: Document) -> dict[str, str]:
    """Create a pool with one running VM and its disk. Return the UIDs of the VM and of the disk's DataVolume."""
    await pools.make(1, template=template or pools.template(disks=["data"], running=True), **spec)
    await pools.until_ready(1)
    return await uids(pools)


async def uids(pools: Pools) -> dict[str, str]:
    return uids_by_name({**await pools.vms(), **await pools.data_volumes()})


async def change_disk(pools: Pools) -> None:
    """Give the pool's template the disk `fresh` in place of its disk."""
    spec = pools.template(disks=["fresh"], running=True)["spec"]
    await pools.change({"spec": {"virtualMachineTemplate": {"spec": spec}}})


async def until_changed(pools: Pools) -> None:
    await pools.until("only the disk fresh-0", pools.data_volumes, lambda seen: [*seen] == ["fresh-0"], within_s=BOOT_S)
    await pools.until_ready(1)


async def until_held(pools: Pools, before: dict[str, str]) -> None:
    """Wait for the Event that the update is held, and check that the VM and its disk stay."""
    await pools.until_told("UpdateHeld")
    await pools.stays("the same VM and disk", lambda: uids(pools), lambda seen: seen == before)


def protected(template: Document) -> Document:
    template["metadata"]["annotations"] = PROTECTED
    return template


@cases.add("P13", requires=NEEDS)
async def disk_template(pools: Pools) -> None:
    """New dataVolumeTemplates create the VM and its disk again."""
    before = await made_with_disk(pools)
    await change_disk(pools)
    await until_changed(pools)
    await pools.until("a new VM pool-0", lambda: uids(pools), lambda seen: seen["pool-0"] != before["pool-0"])


@cases.add("P21", origin=Origin.VMHERD, requires=(Requirement.CDI, Requirement.EXPANSION))
async def disk_growth(pools: Pools) -> None:
    """A larger disk in the template expands the claim, and keeps the VM and the disk."""
    before = await made_with_disk(pools)
    claim = (await pools.claims())["data-0"]["metadata"]["uid"]
    spec = {"dataVolumeTemplates": [data_volume_template("data", "128Mi")]}
    await pools.change({"spec": {"virtualMachineTemplate": {"spec": spec}}})
    await pools.until(
        "the same claim with a request of 128Mi",
        pools.claims,
        lambda seen: is_grown(seen.get("data-0"), claim),
        within_s=BOOT_S,
    )
    await pools.until_equal("a VM with the new size", lambda: size(pools), "128Mi", within_s=BOOT_S)
    await pools.stays("the same VM and disk", lambda: uids(pools), lambda seen: seen == before)


@cases.add("P21", origin=Origin.VMHERD, requires=NEEDS)
async def disk_kept(pools: Pools) -> None:
    """With statePreservation Offline, new dataVolumeTemplates delete nothing until an annotation allows it."""
    before = await made_with_disk(pools, scaleInStrategy={"proactive": {"statePreservation": "Offline"}})
    await change_disk(pools)
    await until_held(pools, before)
    await pools.change({"metadata": {"annotations": {"vmherd.dev/most-disruptive-action": "recreate"}}})
    await until_changed(pools)


@cases.add("P21", origin=Origin.VMHERD, requires=NEEDS)
async def disk_of_user(pools: Pools) -> None:
    """A VM uses a disk that its user made only with vmherd.dev/adopt-disks."""
    name = {"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": {"name": "data-0"}}
    made = await pools.api.create(pools.volumes, {**data_volume_template("data"), **name})
    await pools.make(1, template=pools.template(disks=["data"]))
    await pools.until_told("FailedCreate")
    require("no VM", not await pools.vms(), await pools.vms())
    await pools.change({"metadata": {"annotations": {"vmherd.dev/adopt-disks": "true"}}})
    await pools.until_names(0)
    await pools.until(
        "the disk with the VM as its owner",
        pools.data_volumes,
        lambda seen: bool(owners_of(seen["data-0"])) and not is_new(seen, {"data-0": made}, "data-0"),
        within_s=BOOT_S,
    )


@cases.add("P20", origin=Origin.VMHERD, requires=NEEDS)
async def disk_refused(pools: Pools) -> None:
    """While the server refuses new VMs, new dataVolumeTemplates delete neither a VM nor a disk."""
    before = await made_with_disk(pools)
    await pools.forbid()
    await change_disk(pools)
    await until_held(pools, before)
    await pools.allow()
    await until_changed(pools)


@cases.add("P20", origin=Origin.VMHERD, requires=NEEDS)
async def disk_protect(pools: Pools) -> None:
    """New dataVolumeTemplates never delete a VM with vmherd.dev/protect."""
    before = await made_with_disk(pools, protected(pools.template(disks=["data"], running=True)))
    await change_disk(pools)
    await until_held(pools, before)


@cases.add("P8 P15 P20", origin=Origin.VMHERD)
async def protect_healing(pools: Pools) -> None:
    """Neither healing nor a scale-in deletes a VM with vmherd.dev/protect."""
    template = protected(pools.template(running=True, annotations=FAILING))
    await pools.made(1, template=template, autohealing={"startUpFailureThreshold": 1})
    before = uids_by_name(await pools.vms())
    await until_failing(pools)
    await pools.until_told("HealingHeld")
    await pools.scale(0)
    await pools.until_told("ProtectedFromDeletion")
    await pools.stays("the same VM", pools.vms, lambda seen: uids_by_name(seen) == before)


@cases.add("P13 P21", requires=(Requirement.CDI, Requirement.SIMULATOR))
async def disk_repair(pools: Pools) -> None:
    """A new disk template replaces a disk that cannot be filled."""
    template = pools.template(disks=["data"], running=True)
    template["spec"]["dataVolumeTemplates"][0]["metadata"]["annotations"] = FAILING_DISK
    await pools.made(1, template=template)
    await pools.until(
        "a VM with DataVolumeError",
        lambda: pools.vm("pool-0"),
        lambda vm: (vm.get("status") or {}).get("printableStatus") == "DataVolumeError",
        within_s=BOOT_S,
    )
    await change_disk(pools)
    await pools.until_ready(1)
    await pools.until("the disk fresh-0", pools.data_volumes, lambda seen: "fresh-0" in seen)


async def size(pools: Pools) -> object:
    """Return the size of the disk in the spec of the VM."""
    [disk] = (await pools.vm("pool-0"))["spec"]["dataVolumeTemplates"]
    return disk["spec"]["storage"]["resources"]["requests"]["storage"]


def is_grown(claim: Document | None, uid: str) -> bool:
    return claim is not None and claim["metadata"]["uid"] == uid and requested(claim) >= 128 * UNITS["Mi"]


def requested(claim: Document) -> int:
    """Return the size in bytes that the claim requests."""
    text = str(claim["spec"]["resources"]["requests"]["storage"])
    return int(text.removesuffix(text[-2:])) * UNITS[text[-2:]] if text[-2:] in UNITS else int(text)
