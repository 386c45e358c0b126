"""Cases about the disks that a pool makes from dataVolumeTemplates."""

from __future__ import annotations

from conformance.api import owners_of
from conformance.case import Cases, Document, Kind, Requirement
from conformance.cases.pool_scaling import proactive
from conformance.namespace import BOOT_S, require
from conformance.pools import NAME, Pools

cases: Cases[Pools] = Cases(Kind.POOLS)
NEEDS = (Requirement.CDI,)


def kept(state: str) -> Document:
    strategy = proactive("DescendingOrder")
    strategy["proactive"]["statePreservation"] = state
    return strategy


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


@cases.add(
    "pool-disk-names", "Each VM has a disk of its own, whose name ends with the ordinal", rules="P5", requires=NEEDS
)
async def disk_names(pools: Pools) -> None:
    await with_disks(pools, 2)
    for ordinal in (0, 1):
        spec = (await pools.vm(f"pool-{ordinal}"))["spec"]
        names = [each["metadata"]["name"] for each in spec["dataVolumeTemplates"]]
        volumes = [each["dataVolume"]["name"] for each in spec["template"]["spec"]["volumes"] if "dataVolume" in each]
        require(f"the disk data-{ordinal}", names == volumes == [f"data-{ordinal}"], [*names, *volumes])


@cases.add("pool-disk-deleted", "Without statePreservation, a scale-in deletes the disk", rules="P10", requires=NEEDS)
async def disk_deleted(pools: Pools) -> None:
    await with_disks(pools, 2, scaleInStrategy=proactive("DescendingOrder"))
    await pools.scale(1, NAME)
    await pools.until_names(0)
    await pools.until("only data-0", pools.data_volumes, lambda seen: [*seen] == ["data-0"], within_s=BOOT_S)


@cases.add(
    "pool-disk-preserved", "With statePreservation Offline, a scale-in keeps the disk", rules="P10", requires=NEEDS
)
async def disk_preserved(pools: Pools) -> None:
    before = await with_disks(pools, 2, scaleInStrategy=kept("Offline"))
    await pools.scale(1, NAME)
    await pools.until_names(0)
    await pools.until("no VM pool-1", pools.vms, lambda seen: "pool-1" not in seen, within_s=BOOT_S)
    uid = before["data-1"]["metadata"]["uid"]
    await pools.stays(
        "the disk data-1 without an owner",
        pools.data_volumes,
        lambda seen: "data-1" in seen and seen["data-1"]["metadata"]["uid"] == uid and not owners_of(seen["data-1"]),
    )


@cases.add(
    "pool-disk-reused",
    "With statePreservation Offline, the next VM of the ordinal gets the disk",
    rules="P10",
    requires=NEEDS,
)
async def disk_reused(pools: Pools) -> None:
    before = await with_disks(pools, 2, scaleInStrategy=kept("Offline"))
    await pools.scale(1, NAME)
    await pools.until("no VM pool-1", pools.vms, lambda seen: "pool-1" not in seen, within_s=BOOT_S)
    await pools.scale(2, NAME)
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


@cases.add(
    "pool-disk-delete-vm",
    "A VM that is deleted in the foreground comes back with a new disk",
    rules="P10",
    requires=NEEDS,
)
async def disk_delete_vm(pools: Pools) -> None:
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


@cases.add(
    "pool-disk-delete-pool", "If a pool is deleted, the disks of its VMs are deleted", rules="P6", requires=NEEDS
)
async def disk_delete_pool(pools: Pools) -> None:
    await with_disks(pools, 1)
    await pools.api.delete(pools.path(NAME))
    await pools.until_equal("no VM", pools.vms, {}, within_s=BOOT_S)
    await pools.until_equal("no DataVolume", pools.data_volumes, {}, within_s=BOOT_S)


def is_new(now: dict[str, Document], before: dict[str, Document], name: str) -> bool:
    return name in now and now[name]["metadata"]["uid"] != before[name]["metadata"]["uid"]
