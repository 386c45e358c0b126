"""Cases about a changed disk template, and about VMs that must not be deleted."""

from __future__ import annotations

from conformance.case import Cases, Document, Kind, Origin, Requirement
from conformance.cases.pool_healing import until_failing
from conformance.namespace import BOOT_S
from conformance.policies import new_vms_refused
from conformance.pools import NAME, Pools
from conformance.templates import FAILING, FAILING_DISK, data_volume_template

cases: Cases[Pools] = Cases(Kind.POOLS)
NEEDS = (Requirement.CDI,)
PROTECTED = {"vmherd.dev/protect": "True"}
UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


async def made_with_disk(pools: Pools, template: Document | None = None, **spec: Document) -> dict[str, str]:
    """Create a pool with one running VM and its disk. Return the UIDs of the VM and of the disk's DataVolume."""
    await pools.make(1, template=template or pools.template(disks=["data"], running=True), **spec)
    await pools.until_ready(1)
    return await uids(pools)


async def uids(pools: Pools) -> dict[str, str]:
    found = {**await pools.vms(), **await pools.data_volumes()}
    return {name: each["metadata"]["uid"] for name, each in found.items()}


async def change_disk(pools: Pools, name: str) -> None:
    """Give the pool's template a disk of this name in place of its disk."""
    spec = pools.template(disks=[name], running=True)["spec"]
    await pools.change({"spec": {"virtualMachineTemplate": {"spec": spec}}}, NAME)


async def until_changed(pools: Pools, name: str) -> None:
    await pools.until(
        f"only the disk {name}-0", pools.data_volumes, lambda seen: [*seen] == [f"{name}-0"], within_s=BOOT_S
    )
    await pools.until_ready(1)


async def until_held(pools: Pools, before: dict[str, str]) -> None:
    """Wait for the Event that the update is held, and check that the VM and its disk stay."""
    await pools.until_told(NAME, "UpdateHeld")
    await pools.stays("the same VM and disk", lambda: uids(pools), lambda seen: seen == before)


def protected(template: Document) -> Document:
    template["metadata"]["annotations"] = PROTECTED
    return template


@cases.add(
    "pool-disk-template", "New dataVolumeTemplates create the VM and its disk again", rules="P13", requires=NEEDS
)
async def disk_template(pools: Pools) -> None:
    before = await made_with_disk(pools)
    await change_disk(pools, "fresh")
    await until_changed(pools, "fresh")
    await pools.until("a new VM pool-0", lambda: uids(pools), lambda seen: seen["pool-0"] != before["pool-0"])


@cases.add(
    "pool-disk-growth",
    "A larger disk in the template expands the claim, and keeps the VM and the disk",
    rules="P21",
    origin=Origin.VMHERD,
    requires=(Requirement.CDI, Requirement.EXPANSION),
)
async def disk_growth(pools: Pools) -> None:
    before = await made_with_disk(pools)
    claim = (await pools.claims())["data-0"]["metadata"]["uid"]
    spec = {"dataVolumeTemplates": [data_volume_template("data", "128Mi")]}
    await pools.change({"spec": {"virtualMachineTemplate": {"spec": spec}}}, NAME)
    await pools.until(
        "the same claim with a request of 128Mi",
        pools.claims,
        lambda seen: is_grown(seen.get("data-0"), claim),
        within_s=BOOT_S,
    )
    await pools.until_equal("a VM with the new size", lambda: size(pools), "128Mi", within_s=BOOT_S)
    await pools.stays("the same VM and disk", lambda: uids(pools), lambda seen: seen == before)


@cases.add(
    "pool-disk-kept",
    "With statePreservation Offline, new dataVolumeTemplates delete nothing until an annotation allows it",
    rules="P21",
    origin=Origin.VMHERD,
    requires=NEEDS,
)
async def disk_kept(pools: Pools) -> None:
    before = await made_with_disk(pools, scaleInStrategy={"proactive": {"statePreservation": "Offline"}})
    await change_disk(pools, "fresh")
    await until_held(pools, before)
    await pools.change({"metadata": {"annotations": {"vmherd.dev/most-disruptive-action": "recreate"}}}, NAME)
    await until_changed(pools, "fresh")


@cases.add(
    "pool-disk-refused",
    "While the server refuses new VMs, new dataVolumeTemplates delete neither a VM nor a disk",
    rules="P20",
    origin=Origin.VMHERD,
    requires=NEEDS,
)
async def disk_refused(pools: Pools) -> None:
    before = await made_with_disk(pools)
    async with new_vms_refused(pools):
        await change_disk(pools, "fresh")
        await until_held(pools, before)
    await until_changed(pools, "fresh")


@cases.add(
    "pool-disk-protect",
    "New dataVolumeTemplates never delete a VM with vmherd.dev/protect",
    rules="P20",
    origin=Origin.VMHERD,
    requires=NEEDS,
)
async def disk_protect(pools: Pools) -> None:
    before = await made_with_disk(pools, protected(pools.template(disks=["data"], running=True)))
    await change_disk(pools, "fresh")
    await until_held(pools, before)


@cases.add(
    "pool-protect-healing",
    "Neither healing nor a scale-in deletes a VM with vmherd.dev/protect",
    rules="P8 P15 P20",
    origin=Origin.VMHERD,
)
async def protect_healing(pools: Pools) -> None:
    template = protected(pools.template(running=True, annotations=FAILING))
    await pools.made(1, template=template, autohealing={"startUpFailureThreshold": 1})
    before = await uids(pools)
    await until_failing(pools, "pool-0", 2)
    await pools.until_told(NAME, "HealingHeld")
    await pools.scale(0, NAME)
    await pools.until_told(NAME, "ProtectedFromDeletion")
    await pools.stays("the same VM", lambda: uids(pools), lambda seen: seen == before)


@cases.add(
    "pool-disk-repair",
    "A new disk template replaces a disk that cannot be filled",
    rules="P13 P21",
    requires=(Requirement.CDI, Requirement.SIMULATOR),
)
async def disk_repair(pools: Pools) -> None:
    template = pools.template(disks=["data"], running=True)
    template["spec"]["dataVolumeTemplates"][0]["metadata"]["annotations"] = FAILING_DISK
    await pools.made(1, template=template)
    await pools.until_equal("a VM with DataVolumeError", lambda: state(pools), "DataVolumeError", within_s=BOOT_S)
    await change_disk(pools, "fresh")
    await pools.until_ready(1)
    await pools.until("the disk fresh-0", pools.data_volumes, lambda seen: "fresh-0" in seen)


async def size(pools: Pools) -> object:
    """Return the size of the disk in the spec of the VM."""
    [disk] = (await pools.vm("pool-0"))["spec"]["dataVolumeTemplates"]
    return disk["spec"]["storage"]["resources"]["requests"]["storage"]


async def state(pools: Pools) -> object:
    return ((await pools.vm("pool-0")).get("status") or {}).get("printableStatus")


def is_grown(claim: Document | None, uid: str) -> bool:
    return claim is not None and claim["metadata"]["uid"] == uid and requested(claim) >= 128 * UNITS["Mi"]


def requested(claim: Document) -> int:
    """Return the size in bytes that the claim requests."""
    text = str(claim["spec"]["resources"]["requests"]["storage"])
    return int(text.removesuffix(text[-2:])) * UNITS[text[-2:]] if text[-2:] in UNITS else int(text)
