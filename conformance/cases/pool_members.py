"""Cases about the membership and the content of a pool's VMs."""

from conformance.api import finalizers_of, labels_of, owners_of, require
from conformance.case import Cases, Document, Kind, Origin
from conformance.namespace import BOOT_S
from conformance.pools import LABELS, Pools
from conformance.templates import HOLD, POOL_FINALIZER

cases: Cases[Pools] = Cases(Kind.POOLS)


@cases.add("P3")
async def names(pools: Pools) -> None:
    """The name of a VM is the name of the pool, a hyphen and an ordinal from 0."""
    await pools.make(3)
    await pools.until_names(0, 1, 2)


@cases.add("P4 P6")
async def finalizers(pools: Pools) -> None:
    """A pool that keeps disks has the finalizer pool.kubevirt.io/finalizer, and so have its VMs."""
    [vm] = (await pools.made(1, scaleInStrategy={"proactive": {"statePreservation": "Offline"}})).values()
    pool = await pools.read()
    require("the finalizer on the VM", POOL_FINALIZER in finalizers_of(vm), finalizers_of(vm))
    require("the finalizer on the pool", POOL_FINALIZER in finalizers_of(pool), finalizers_of(pool))


@cases.add("P6", origin=Origin.VMHERD)
async def foreign_finalizers(pools: Pools) -> None:
    """Finalizers of other controllers stay on the pool."""
    try:
        await pools.made(1, finalizers=[HOLD])
        found = finalizers_of(await pools.read())
        require(f"the finalizers {HOLD} and {POOL_FINALIZER}", {*found} == {HOLD, POOL_FINALIZER}, found)
    finally:
        await pools.let_go(pools.path())


@cases.add("P4")
async def vmi_labels(pools: Pools) -> None:
    """A VMI has the labels of the VMI template, so that a Service can select it."""
    await pools.make(1, template=pools.template(running=True, labels={"tier": "front"}))
    await pools.until(
        "a VMI with the label tier=front",
        pools.vmis,
        lambda seen: [labels_of(vmi).get("tier") for vmi in seen.values()] == ["front"],
    )


@cases.add("P2")
async def detach(pools: Pools) -> None:
    """A VM whose ownerReference is removed stays, and a new VM replaces it."""
    before = await pools.made(2)
    await pools.api.merge(f"{pools.vm_path}/pool-0", {"metadata": {"ownerReferences": None}})
    await pools.until_names(1, 2)
    after = (await pools.vms()).get("pool-0")
    uid = before["pool-0"]["metadata"]["uid"]
    require("that pool-0 stays", after and after["metadata"]["uid"] == uid, after or "pool-0 is gone")


@cases.add("P2 P6", origin=Origin.VMHERD)
async def detach_delete(pools: Pools) -> None:
    """A detached VM can be deleted while the pool exists."""
    await pools.made(2)
    await pools.api.merge(f"{pools.vm_path}/pool-0", {"metadata": {"ownerReferences": None}})
    await pools.until_names(1, 2)
    await pools.delete_vm("pool-0")
    await pools.until("no VM pool-0", pools.vms, lambda seen: "pool-0" not in seen)


@cases.add("P2", origin=Origin.VMHERD)
async def release(pools: Pools) -> None:
    """A VM whose labels no longer match is released and replaced."""
    await pools.made(2)
    await pools.api.merge(f"{pools.vm_path}/pool-0", {"metadata": {"labels": {"app": "other"}}})
    await pools.until_names(1, 2)
    await pools.until("pool-0 without an owner", lambda: pools.vm("pool-0"), lambda vm: not owners_of(vm))


@cases.add("P2")
async def no_adoption(pools: Pools) -> None:
    """A pool does not adopt a VM that only matches its selector."""
    bystander = pools.new_member("bystander")
    bystander["metadata"]["labels"] = LABELS
    await pools.api.create(pools.vm_path, bystander)
    await pools.made(1)
    await pools.stays(
        "2 VMs, and no owner of the bystander",
        pools.vms,
        lambda seen: seen.keys() == {"pool-0", "bystander"} and not owners_of(seen["bystander"]),
    )


@cases.add("P3", origin=Origin.VMHERD)
async def restored(pools: Pools) -> None:
    """A new pool creates no VM beside VMs with its names and labels and no owner, and manages them with an owner."""
    for name in ("pool-0", "pool-1"):
        vm = pools.new_member(name)
        vm["metadata"]["labels"] = LABELS
        await pools.api.create(pools.vm_path, vm)
    await pools.make(2)
    await pools.stays("2 VMs", pools.vms, lambda seen: seen.keys() == {"pool-0", "pool-1"})
    pool = await pools.read()
    owner = {name: pool[name] for name in ("apiVersion", "kind")} | {"controller": True, "blockOwnerDeletion": True}
    owner |= {name: pool["metadata"][name] for name in ("name", "uid")}
    for name in ("pool-0", "pool-1"):
        await pools.api.merge(f"{pools.vm_path}/{name}", {"metadata": {"ownerReferences": [owner]}})
    await pools.until_names(0, 1)
    await pools.scale(3)
    await pools.until_names(0, 1, 2)


@cases.add("P6")
async def delete_running(pools: Pools) -> None:
    """If a pool of running VMs is deleted, its VMs and VMIs are deleted."""
    await pools.make(2, template=pools.template(running=True))
    await pools.until_ready(2)
    await pools.delete()
    await pools.until_equal("no VM", pools.vms, {}, within_s=BOOT_S)
    await pools.until_equal("no VMI", pools.vmis, {}, within_s=BOOT_S)


@cases.add("P6 P11")
async def orphan_revisions(pools: Pools) -> None:
    """A pool deleted with --cascade=orphan leaves no ControllerRevision."""
    await pools.made(1)
    await pools.until("a ControllerRevision", pools.revisions, bool)
    await pools.delete("Orphan")
    await pools.until_equal("no ControllerRevision", pools.revisions, {})


@cases.add("P6")
async def orphan_delete(pools: Pools) -> None:
    """VMs that a deleted pool left can be deleted."""
    await pools.made(2)
    await pools.delete("Orphan")
    for name in await pools.vms():
        await pools.delete_vm(name)
    await pools.until_equal("no VM", pools.vms, {}, within_s=BOOT_S)


async def check_references(pools: Pools, *wanted: tuple[str, str, str], **setting: bool) -> None:
    """Check the names of the ConfigMap and the two Secrets to which each VM refers."""
    volumes: list[Document] = [
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "password", "secret": {"secretName": "password"}},
        {"name": "userdata", "cloudInitNoCloud": {"secretRef": {"name": "userdata"}}},
    ]
    options = {"nameGeneration": setting} if setting else {}
    await pools.made(2, template=pools.template(volumes=volumes), **options)
    found = []
    for _, vm in sorted((await pools.members()).items()):
        by_name = {volume["name"]: volume for volume in vm["spec"]["template"]["spec"]["volumes"]}
        names = by_name["settings"]["configMap"]["name"], by_name["password"]["secret"]["secretName"]
        found.append((*names, by_name["userdata"]["cloudInitNoCloud"]["secretRef"]["name"]))
    require(f"the names {wanted}", found == [*wanted], found)


@cases.add("P5")
async def references_plain(pools: Pools) -> None:
    """Without nameGeneration, all VMs refer to the same ConfigMap and Secrets."""
    await check_references(pools, *[("settings", "password", "userdata")] * 2)


@cases.add("P5")
async def references_secrets(pools: Pools) -> None:
    """appendIndexToSecretRefs appends the ordinal to the names of Secrets."""
    wanted = [("settings", f"password-{index}", f"userdata-{index}") for index in (0, 1)]
    await check_references(pools, *wanted, appendIndexToSecretRefs=True)


@cases.add("P5")
async def references_config_maps(pools: Pools) -> None:
    """appendIndexToConfigMapRefs appends the ordinal to the names of ConfigMaps."""
    wanted = [(f"settings-{index}", "password", "userdata") for index in (0, 1)]
    await check_references(pools, *wanted, appendIndexToConfigMapRefs=True)


@cases.add("P5")
async def references_sysprep(pools: Pools) -> None:
    """References of sysprep volumes stay as written."""
    answers = {"name": "answers", "sysprep": {"configMap": {"name": "answers"}}}
    setting = {"appendIndexToConfigMapRefs": True, "appendIndexToSecretRefs": True}
    [vm] = (await pools.made(1, template=pools.template(volumes=[answers]), nameGeneration=setting)).values()
    volumes = {volume["name"]: volume for volume in vm["spec"]["template"]["spec"]["volumes"]}
    name = volumes["answers"]["sysprep"]["configMap"]["name"]
    require("the ConfigMap answers", name == "answers", name)


@cases.add("P2 P3")
async def two_pools(pools: Pools) -> None:
    """Two pools with the same VM labels and different names keep their own VMs."""
    first = await pools.made(2)
    await pools.make(2, name="other")
    await pools.until_names(0, 1, name="other")
    await pools.scale(0, "other")
    await pools.until_names(name="other")
    after = await pools.members()
    require("that the first pool keeps its VMs", after.keys() == first.keys(), after)
