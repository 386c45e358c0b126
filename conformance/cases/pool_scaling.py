"""Cases about the number of VMs of a pool, and about the VMs that a scale-in deletes."""

import asyncio

from conformance.api import labels_of, owners_of, require, uids_by_name, uids_of
from conformance.case import Cases, Document, Kind, Origin
from conformance.cases.shared_scaling import annotate, made_at
from conformance.namespace import BOOT_S, SEEN_S, STOPPED_S
from conformance.pools import Pools

cases: Cases[Pools] = Cases(Kind.POOLS)


def proactive(policy: str, **more: Document) -> Document:
    return {"proactive": {"selectionPolicy": {"sortPolicy": policy, **more}}}


@cases.add("P3 P4")
async def scale_out(pools: Pools) -> None:
    """A higher spec.replicas adds VMs with the next ordinals."""
    await pools.made(2)
    await pools.scale(5)
    await pools.until_names(0, 1, 2, 3, 4)


@cases.add("P3")
async def fill_gap(pools: Pools) -> None:
    """A scale-out fills the gaps between the ordinals."""
    await pools.made(3, scaleInStrategy=proactive("AscendingOrder"))
    await pools.scale(2)
    before = await pools.until_names(1, 2)
    await pools.until("no VM pool-0", pools.vms, lambda seen: "pool-0" not in seen, within_s=STOPPED_S)
    await pools.scale(4)
    after = await pools.until_names(0, 1, 2, 3)
    require("that pool-1 and pool-2 stay", uids_of(before) <= uids_of(after), after)


@cases.add("P3")
async def taken_name(pools: Pools) -> None:
    """A pool leaves out an ordinal whose name another VM has."""
    foreign = await pools.api.create(pools.vm_path, pools.new_member("pool-1"))
    await pools.make(3)
    await pools.until_names(0, 2, 3)
    kept = await pools.vm("pool-1")
    require("that the other VM stays", kept["metadata"]["uid"] == foreign["metadata"]["uid"], kept)
    same = not owners_of(kept) and labels_of(kept) == labels_of(foreign)
    require("no owner and no new label of the other VM", same, kept["metadata"])
    await pools.delete_vm("pool-1")
    await pools.until("no VM pool-1", pools.vms, lambda seen: "pool-1" not in seen, within_s=STOPPED_S)
    await asyncio.sleep(SEEN_S)
    await pools.scale(4)
    await pools.until_names(0, 1, 2, 3)


@cases.add("P3 P9")
async def replace_deleted(pools: Pools) -> None:
    """A VM that a user deletes is created again under its name."""
    before = await pools.made(3)
    await pools.delete_vm("pool-1")
    await pools.until_new("pool-1", before)
    kept, old = uids_by_name(await pools.until_names(0, 1, 2)), uids_by_name(before)
    require("that the other VMs stay", (kept["pool-0"], kept["pool-2"]) == (old["pool-0"], old["pool-2"]), kept)


@cases.add("P8")
async def scale_in_descending(pools: Pools) -> None:
    """With DescendingOrder, the highest ordinals are deleted first."""
    await pools.made(5, scaleInStrategy=proactive("DescendingOrder"))
    await keeps(pools, 0, 1)


@cases.add("P8")
async def scale_in_ascending(pools: Pools) -> None:
    """With AscendingOrder, the lowest ordinals are deleted first."""
    await pools.made(5, scaleInStrategy=proactive("AscendingOrder"))
    await keeps(pools, 3, 4)


@cases.add("P8")
async def scale_in_oldest(pools: Pools) -> None:
    """With Oldest, the VM that was created first is deleted first."""
    await of_different_age(pools, "Oldest")
    await keeps(pools, 0, 2)


@cases.add("P8")
async def scale_in_newest(pools: Pools) -> None:
    """With Newest, the VM that was created last is deleted first."""
    await of_different_age(pools, "Newest")
    await keeps(pools, 1, 2)


async def keeps(pools: Pools, *ordinals: int) -> None:
    """Scale to this number of VMs, and wait until only these ordinals are left."""
    await pools.scale(len(ordinals))
    await pools.until_names(*ordinals)


async def of_different_age(pools: Pools, policy: str) -> None:
    """Make a pool whose VMs were created in the order 1, 2, 0."""
    before = await pools.made(2, scaleInStrategy=proactive(policy))
    await asyncio.sleep(SEEN_S)
    await pools.scale(3)
    await pools.until_names(0, 1, 2)
    await asyncio.sleep(SEEN_S)
    await pools.delete_vm("pool-0")
    await pools.until_new("pool-0", before)


@cases.add("P8")
async def scale_in_selector(pools: Pools) -> None:
    """Scale-in deletes only VMs that the selection policy selects."""
    selectors = {"labelSelector": {"matchLabels": {"spare": "yes"}}}
    await pools.made(3, scaleInStrategy={"proactive": {"selectionPolicy": {"selectors": selectors}}})
    spare = {"metadata": {"labels": {"spare": "yes"}}}
    await pools.api.merge(f"{pools.vm_path}/pool-1", {**spare, "spec": {"template": spare}})
    await pools.until(
        "the label on pool-1", lambda: pools.vm("pool-1"), lambda vm: "spare" in vm["metadata"].get("labels", {})
    )
    await asyncio.sleep(SEEN_S)
    await pools.scale(2)
    await pools.until_names(0, 2)


@cases.add("P9")
async def scale_in_opportunistic(pools: Pools) -> None:
    """With opportunistic scale-in, the pool deletes no VM."""
    await check_nothing_leaves(pools, "opportunistic")


@cases.add("P9", origin=Origin.VMHERD)
async def scale_in_opportunistic_delete(pools: Pools) -> None:
    """With opportunistic scale-in, a surplus VM that a user deletes goes and is not replaced."""
    await pools.made(3, scaleInStrategy={"opportunistic": {}})
    await pools.scale(1)
    await pools.stays("3 VMs", pools.members, lambda seen: len(seen) == 3, for_s=1.5)
    await pools.delete_vm("pool-0")
    await pools.until("2 VMs", pools.vms, lambda seen: len(seen) == 2, within_s=STOPPED_S)
    await pools.stays("2 VMs", pools.vms, lambda seen: len(seen) == 2)


@cases.add("P9")
async def scale_in_unmanaged(pools: Pools) -> None:
    """With unmanaged scale-in, the pool deletes no VM."""
    await check_nothing_leaves(pools, "unmanaged")


async def check_nothing_leaves(pools: Pools, strategy: str) -> None:
    before = await pools.made(3, scaleInStrategy={strategy: {}})
    await pools.scale(1)
    await pools.stays("3 VMs", pools.members, lambda seen: seen.keys() == before.keys())


@cases.add("P8", origin=Origin.VMHERD)
async def remove_mark(pools: Pools) -> None:
    """Scale-in deletes VMs with vmherd.dev/remove first."""
    await pools.made(4, scaleInStrategy=proactive("DescendingOrder"))
    await pools.api.merge(f"{pools.vm_path}/pool-0", {"metadata": {"annotations": {"vmherd.dev/deletion-cost": "-9"}}})
    await annotate(pools, "pool-1", {"vmherd.dev/remove": "true", "vmherd.dev/deletion-cost": "9"})
    await pools.scale(3)
    await pools.until_names(0, 2, 3)
    await pools.scale(2)
    await pools.until_names(2, 3)


@cases.add("P8", origin=Origin.VMHERD)
async def deletion_cost(pools: Pools) -> None:
    """Scale-in deletes the VM with the lowest cost first."""
    await pools.made(3, scaleInStrategy=proactive("DescendingOrder"))
    await annotate(pools, "pool-2", {"vmherd.dev/deletion-cost": "10"})
    await annotate(pools, "pool-0", {"vmherd.dev/deletion-cost": "-10"})
    await pools.scale(2)
    await pools.until_names(1, 2)


@cases.add("P33", origin=Origin.VMHERD)
async def claim(pools: Pools) -> None:
    """A VM with vmherd.dev/claimed-by stays, another takes its place, and it is deleted when its claim ends."""
    await pools.made(1)
    await annotate(pools, "pool-0", {"vmherd.dev/claimed-by": "job"})
    await pools.until("another VM pool-1", pools.vms, lambda seen: seen.keys() == {"pool-0", "pool-1"})
    await pools.scale(0)
    await pools.until("only pool-0", pools.vms, lambda seen: seen.keys() == {"pool-0"}, within_s=STOPPED_S)
    await pools.stays("pool-0", pools.vms, lambda seen: seen.keys() == {"pool-0"})
    await annotate(pools, "pool-0", {"vmherd.dev/claimed-until": await made_at(pools, "pool-0")})
    await pools.until_names()


@cases.add("P32", origin=Origin.VMHERD)
async def standby(pools: Pools) -> None:
    """With vmherd.dev/standby, a VM that has been ready rests beside the wanted ones, and a scale-out wakes it."""
    await pools.make(1, annotations={"vmherd.dev/standby": "1"}, template=pools.template(running=True))
    before = await pools.until(
        "that pool-1 rests", pools.vms, lambda seen: strategy(seen, "pool-1") == "Halted", within_s=BOOT_S
    )
    await pools.until(
        "that the guest of pool-1 has ended", pools.vmis, lambda seen: seen.keys() == {"pool-0"}, within_s=BOOT_S
    )
    await pools.until_replicas(1)
    await pools.scale(2)
    await pools.until("that pool-1 runs", pools.vms, lambda seen: strategy(seen, "pool-1") != "Halted")
    after = await pools.until(
        "a new standby pool-2", pools.vms, lambda seen: seen.keys() == {"pool-0", "pool-1", "pool-2"}
    )
    require("that pool-1 is the same VM", uids_by_name(before)["pool-1"] == uids_by_name(after)["pool-1"], after)
    await pools.until_replicas(2)


def strategy(seen: dict[str, Document], name: str) -> str:
    found: str = seen.get(name, {"spec": {}})["spec"].get("runStrategy", "")
    return found
