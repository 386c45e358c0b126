"""Cases about the number of VMs of a pool, and about the VMs that a scale-in deletes."""

from __future__ import annotations

import asyncio

from conformance.api import labels_of, owners_of, uids_of
from conformance.case import Cases, Document, Kind, Origin
from conformance.namespace import STOPPED_S, require
from conformance.pools import NAME, Pools

cases: Cases[Pools] = Cases(Kind.POOLS)
BETWEEN_CREATES_S = 1.1
"""The time between the creation of two VMs, in seconds. Creation times are whole seconds. After this pause, the next VM
has a different creation time.
"""


def proactive(policy: str, **more: Document) -> Document:
    return {"proactive": {"selectionPolicy": {"sortPolicy": policy, **more}}}


@cases.add("pool-bring-up", "A new pool starts its VMs, and all become ready", rules="P4 P7")
async def bring_up(pools: Pools) -> None:
    await pools.make(3, template=pools.template(running=True))
    await pools.until_ready(3)


@cases.add("pool-default-replicas", "A pool without spec.replicas has one VM", rules="P4")
async def default_replicas(pools: Pools) -> None:
    await pools.make(None)
    await pools.until_names(0)


@cases.add("pool-scale-out", "A higher spec.replicas adds VMs with the next ordinals", rules="P3 P4")
async def scale_out(pools: Pools) -> None:
    await pools.made(2)
    await pools.scale(5, NAME)
    await pools.until_names(0, 1, 2, 3, 4)


@cases.add("pool-scale-in", "A lower spec.replicas deletes the surplus VMs", rules="P8")
async def scale_in(pools: Pools) -> None:
    before = await pools.made(4)
    await pools.scale(1, NAME)
    found = await pools.until("1 VM", pools.vms, lambda seen: len(seen) == 1, within_s=STOPPED_S)
    require("one of the earlier VMs", found.keys() <= before.keys(), found)


@cases.add("pool-scale-to-zero", "With spec.replicas 0, all VMs are deleted", rules="P8")
async def scale_to_zero(pools: Pools) -> None:
    await pools.made(2)
    await pools.scale(0, NAME)
    await pools.until_names()
    await pools.until_equal("no VM", pools.vms, {}, within_s=STOPPED_S)


@cases.add("pool-scale-subresource", "The subresource scale changes the number of VMs, as kubectl scale", rules="P4 P8")
async def scale_subresource(pools: Pools) -> None:
    await pools.made(1)
    await pools.scale_by_subresource(3, NAME)
    await pools.until_names(0, 1, 2)
    await pools.scale_by_subresource(0, NAME)
    await pools.until_names()


@cases.add("pool-scale-read", "The subresource scale tells the number and the selector of the VMs", rules="P17")
async def scale_read(pools: Pools) -> None:
    await pools.made(2)

    async def read() -> tuple[object, ...]:
        scale = await pools.api.get(pools.path(NAME, "scale"))
        status = scale["status"]
        return scale["spec"]["replicas"], status.get("replicas"), status.get("selector")

    await pools.until_equal("2 wanted, 2 present, selector app=pool", read, (2, 2, "app=pool"))


@cases.add("pool-autoscaler", "A HorizontalPodAutoscaler (autoscaling/v2) scales a pool", rules="P4")
async def autoscaler(pools: Pools) -> None:
    await pools.made(1)
    await pools.autoscale(3, NAME)
    await pools.until("3 VMs", pools.members, lambda seen: len(seen) == 3, within_s=90)


@cases.add("pool-fill-gap", "A scale-out fills the gaps between the ordinals", rules="P3")
async def fill_gap(pools: Pools) -> None:
    await pools.made(3, scaleInStrategy=proactive("AscendingOrder"))
    await pools.scale(2, NAME)
    before = await pools.until_names(1, 2)
    await pools.until("no VM pool-0", pools.vms, lambda seen: "pool-0" not in seen, within_s=STOPPED_S)
    await pools.scale(4, NAME)
    after = await pools.until_names(0, 1, 2, 3)
    require("that pool-1 and pool-2 stay", uids_of(before) <= uids_of(after), after)


@cases.add("pool-taken-name", "A pool leaves out an ordinal whose name another VM has", rules="P3")
async def taken_name(pools: Pools) -> None:
    template = pools.template(labels={"app": "other"})
    body = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "pool-1"}}
    foreign = await pools.api.create(pools.vm_path, {**body, "spec": template["spec"]})
    await pools.make(3)
    await pools.until_names(0, 2, 3)
    kept = await pools.vm("pool-1")
    require("that the other VM stays", kept["metadata"]["uid"] == foreign["metadata"]["uid"], kept)
    same = not owners_of(kept) and labels_of(kept) == labels_of(foreign)
    require("no owner and no new label of the other VM", same, kept["metadata"])
    await pools.delete_vm("pool-1")
    await pools.until("no VM pool-1", pools.vms, lambda seen: "pool-1" not in seen, within_s=STOPPED_S)
    await asyncio.sleep(BETWEEN_CREATES_S)  # a controller decides from its cache, which may be behind
    await pools.scale(4, NAME)
    await pools.until_names(0, 1, 2, 3)


@cases.add("pool-replace-deleted", "A VM that a user deletes is created again under its name", rules="P3 P9")
async def replace_deleted(pools: Pools) -> None:
    before = await pools.made(3)
    uid = before["pool-1"]["metadata"]["uid"]
    await pools.delete_vm("pool-1")
    found = await pools.until(
        "a new VM pool-1",
        pools.members,
        lambda seen: len(seen) == 3 and "pool-1" in seen and seen["pool-1"]["metadata"]["uid"] != uid,
        within_s=STOPPED_S,
    )
    kept = {name: vm["metadata"]["uid"] for name, vm in found.items() if name != "pool-1"}
    require("that the other VMs stay", kept == {name: before[name]["metadata"]["uid"] for name in kept}, found)


@cases.add("pool-scale-in-descending", "With DescendingOrder, the highest ordinals are deleted first", rules="P8")
async def descending(pools: Pools) -> None:
    await pools.made(5, scaleInStrategy=proactive("DescendingOrder"))
    await pools.scale(2, NAME)
    await pools.until_names(0, 1)


@cases.add("pool-scale-in-ascending", "With AscendingOrder, the lowest ordinals are deleted first", rules="P8")
async def ascending(pools: Pools) -> None:
    await pools.made(5, scaleInStrategy=proactive("AscendingOrder"))
    await pools.scale(2, NAME)
    await pools.until_names(3, 4)


@cases.add("pool-scale-in-oldest", "With Oldest, the VM that was created first is deleted first", rules="P8")
async def oldest(pools: Pools) -> None:
    await of_different_age(pools, "Oldest")
    await pools.scale(2, NAME)
    await pools.until_names(0, 2)


@cases.add("pool-scale-in-newest", "With Newest, the VM that was created last is deleted first", rules="P8")
async def newest(pools: Pools) -> None:
    await of_different_age(pools, "Newest")
    await pools.scale(2, NAME)
    await pools.until_names(1, 2)


async def of_different_age(pools: Pools, policy: str) -> None:
    """Make a pool whose VMs were created in the order 1, 2, 0."""
    before = await pools.made(2, scaleInStrategy=proactive(policy))
    await asyncio.sleep(BETWEEN_CREATES_S)
    await pools.scale(3, NAME)
    await pools.until_names(0, 1, 2)
    await asyncio.sleep(BETWEEN_CREATES_S)
    uid = before["pool-0"]["metadata"]["uid"]
    await pools.delete_vm("pool-0")
    await pools.until(
        "a new VM pool-0",
        pools.members,
        lambda seen: "pool-0" in seen and seen["pool-0"]["metadata"]["uid"] != uid,
        within_s=STOPPED_S,
    )


@cases.add("pool-scale-in-selector", "Scale-in deletes only VMs that the selection policy selects", rules="P8")
async def scale_in_selector(pools: Pools) -> None:
    selectors = {"labelSelector": {"matchLabels": {"spare": "yes"}}}
    await pools.made(3, scaleInStrategy={"proactive": {"selectionPolicy": {"selectors": selectors}}})
    spare = {"metadata": {"labels": {"spare": "yes"}}}
    await pools.api.merge(f"{pools.vm_path}/pool-1", {**spare, "spec": {"template": spare}})
    await pools.until(
        "the label on pool-1", lambda: pools.vm("pool-1"), lambda vm: "spare" in vm["metadata"].get("labels", {})
    )
    await asyncio.sleep(BETWEEN_CREATES_S)  # a controller decides from its cache, which may be behind
    await pools.scale(2, NAME)
    await pools.until_names(0, 2)


@cases.add("pool-scale-in-opportunistic", "With opportunistic scale-in, the pool deletes no VM", rules="P9")
async def opportunistic(pools: Pools) -> None:
    before = await pools.made(3, scaleInStrategy={"opportunistic": {}})
    await pools.scale(1, NAME)
    await pools.stays("3 VMs", pools.members, lambda seen: seen.keys() == before.keys())


@cases.add(
    "pool-scale-in-opportunistic-delete",
    "With opportunistic scale-in, a surplus VM that a user deletes goes and is not replaced",
    rules="P9",
    origin=Origin.VMHERD,
)
async def opportunistic_delete(pools: Pools) -> None:
    await pools.made(3, scaleInStrategy={"opportunistic": {}})
    await pools.scale(1, NAME)
    await pools.stays("3 VMs", pools.members, lambda seen: len(seen) == 3, for_s=1.5)
    await pools.delete_vm("pool-0")
    await pools.until("2 VMs", pools.vms, lambda seen: len(seen) == 2, within_s=STOPPED_S)
    await pools.stays("2 VMs", pools.vms, lambda seen: len(seen) == 2)


@cases.add("pool-scale-in-unmanaged", "With unmanaged scale-in, the pool deletes no VM", rules="P9")
async def unmanaged(pools: Pools) -> None:
    before = await pools.made(3, scaleInStrategy={"unmanaged": {}})
    await pools.scale(1, NAME)
    await pools.stays("3 VMs", pools.members, lambda seen: seen.keys() == before.keys())


@cases.add("pool-remove-mark", "Scale-in deletes VMs with vmherd.dev/remove first", rules="P8", origin=Origin.VMHERD)
async def remove_mark(pools: Pools) -> None:
    await pools.made(4, scaleInStrategy=proactive("DescendingOrder"))
    await pools.api.merge(f"{pools.vm_path}/pool-0", {"metadata": {"annotations": {"vmherd.dev/deletion-cost": "-9"}}})
    await annotate(pools, "pool-1", {"vmherd.dev/remove": "true", "vmherd.dev/deletion-cost": "9"})
    await pools.scale(3, NAME)
    await pools.until_names(0, 2, 3)
    await pools.scale(2, NAME)
    await pools.until_names(2, 3)


@cases.add("pool-protect-mark", "Scale-in never deletes a VM with vmherd.dev/protect", rules="P8", origin=Origin.VMHERD)
async def protect_mark(pools: Pools) -> None:
    await pools.made(3, scaleInStrategy=proactive("DescendingOrder"))
    await annotate(pools, "pool-2", {"vmherd.dev/protect": "true", "vmherd.dev/remove": "true"})
    await pools.scale(0, NAME)
    await pools.until_names(2)
    await pools.until_told(NAME, "ProtectedFromDeletion")
    await pools.stays("the protected VM", pools.members, lambda seen: [*seen] == ["pool-2"])
    await annotate(pools, "pool-2", {"vmherd.dev/protect": "false"})
    await pools.until_names()


@cases.add("pool-deletion-cost", "Scale-in deletes the VM with the lowest cost first", rules="P8", origin=Origin.VMHERD)
async def deletion_cost(pools: Pools) -> None:
    await pools.made(3, scaleInStrategy=proactive("DescendingOrder"))
    await annotate(pools, "pool-2", {"vmherd.dev/deletion-cost": "10"})
    await annotate(pools, "pool-0", {"vmherd.dev/deletion-cost": "-10"})
    await pools.scale(2, NAME)
    await pools.until_names(1, 2)


async def annotate(pools: Pools, vm: str, annotations: dict[str, str]) -> None:
    await pools.api.merge(f"{pools.vm_path}/{vm}", {"metadata": {"annotations": annotations}})
    await asyncio.sleep(BETWEEN_CREATES_S)  # a controller decides from its cache, which may be behind
