"""Cases about the membership and the content of a pool's VMs."""

from __future__ import annotations

from conformance.api import controller_of, labels_of, owners_of
from conformance.case import Cases, Document, Kind, Origin
from conformance.namespace import BOOT_S, require
from conformance.pools import LABELS, NAME, Pools
from conformance.templates import HOLD, POOL_FINALIZER

cases: Cases[Pools] = Cases(Kind.POOLS)


def finalizers_of(document: Document) -> list[str]:
    return document["metadata"].get("finalizers") or []


@cases.add("pool-names", "The name of a VM is the name of the pool, a hyphen and an ordinal from 0", rules="P3")
async def names(pools: Pools) -> None:
    await pools.make(3)
    await pools.until_names(0, 1, 2)


@cases.add("pool-owner-reference", "The pool is the controller of each VM and has blockOwnerDeletion", rules="P4")
async def owner_reference(pools: Pools) -> None:
    [vm] = (await pools.made(1)).values()
    uid = (await pools.read(NAME))["metadata"]["uid"]
    owner = controller_of(vm)
    wanted = (pools.subject.kind, NAME, uid)
    seen = owner and (owner["kind"], owner["name"], owner["uid"])
    require(f"the controller {pools.subject.kind} {NAME}", seen == wanted, owner)
    require("blockOwnerDeletion", owner and owner.get("blockOwnerDeletion"), owner)


@cases.add(
    "pool-finalizers",
    "A pool that keeps disks has the finalizer pool.kubevirt.io/finalizer, and so have its VMs",
    rules="P4 P6",
)
async def finalizers(pools: Pools) -> None:
    [vm] = (await pools.made(1, scaleInStrategy={"proactive": {"statePreservation": "Offline"}})).values()
    pool = await pools.read(NAME)
    require("the finalizer on the VM", POOL_FINALIZER in finalizers_of(vm), finalizers_of(vm))
    require("the finalizer on the pool", POOL_FINALIZER in finalizers_of(pool), finalizers_of(pool))


@cases.add(
    "pool-foreign-finalizers", "Finalizers of other controllers stay on the pool", rules="P6", origin=Origin.VMHERD
)
async def foreign_finalizers(pools: Pools) -> None:
    try:
        await pools.made(1, finalizers=[HOLD])
        found = finalizers_of(await pools.read(NAME))
        require(f"the finalizers {HOLD} and {POOL_FINALIZER}", {*found} == {HOLD, POOL_FINALIZER}, found)
    finally:
        await pools.let_go(pools.path(NAME))


@cases.add(
    "pool-template-metadata", "A VM has the labels, the annotations and the run strategy of the template", rules="P4"
)
async def template_metadata(pools: Pools) -> None:
    template = pools.template()
    template["metadata"] = {"labels": {**LABELS, "tier": "front"}, "annotations": {"example.org/note": "hello"}}
    [vm] = (await pools.made(1, template=template)).values()
    require("the labels app and tier", labels_of(vm).items() >= {**LABELS, "tier": "front"}.items(), labels_of(vm))
    annotations = vm["metadata"].get("annotations") or {}
    require("the annotation example.org/note", annotations.get("example.org/note") == "hello", annotations)
    require("runStrategy Halted", vm["spec"].get("runStrategy") == "Halted", vm["spec"].get("runStrategy"))


@cases.add("pool-vmi-labels", "A VMI has the labels of the VMI template, so that a Service can select it", rules="P4")
async def vmi_labels(pools: Pools) -> None:
    await pools.make(1, template=pools.template(running=True, labels={"tier": "front"}))
    await pools.until(
        "a VMI with the label tier=front",
        pools.vmis,
        lambda seen: [labels_of(vmi).get("tier") for vmi in seen.values()] == ["front"],
    )


@cases.add("pool-detach", "A VM whose ownerReference is removed stays, and a new VM replaces it", rules="P2")
async def detach(pools: Pools) -> None:
    before = await pools.made(2)
    await pools.api.merge(f"{pools.vm_path}/pool-0", {"metadata": {"ownerReferences": None}})
    await pools.until_names(1, 2)
    after = (await pools.vms()).get("pool-0")
    uid = before["pool-0"]["metadata"]["uid"]
    require("that pool-0 stays", after and after["metadata"]["uid"] == uid, after or "pool-0 is gone")


@cases.add(
    "pool-detach-delete",
    "A detached VM can be deleted while the pool exists",
    rules="P2 P6",
    origin=Origin.VMHERD,
)
async def detach_delete(pools: Pools) -> None:
    await pools.made(2)
    await pools.api.merge(f"{pools.vm_path}/pool-0", {"metadata": {"ownerReferences": None}})
    await pools.until_names(1, 2)
    await pools.delete_vm("pool-0")
    await pools.until("no VM pool-0", pools.vms, lambda seen: "pool-0" not in seen)


@cases.add(
    "pool-release", "A VM whose labels no longer match is released and replaced", rules="P2", origin=Origin.VMHERD
)
async def release(pools: Pools) -> None:
    await pools.made(2)
    await pools.api.merge(f"{pools.vm_path}/pool-0", {"metadata": {"labels": {"app": "other"}}})
    await pools.until_names(1, 2)
    await pools.until_equal("pool-0 without an owner", lambda: owners(pools, "pool-0"), [])


async def owners(pools: Pools, vm: str) -> list[Document]:
    return owners_of(await pools.vm(vm))


@cases.add("pool-no-adoption", "A pool does not adopt a VM that only matches its selector", rules="P2")
async def no_adoption(pools: Pools) -> None:
    template = pools.template()
    metadata = {"name": "bystander", "labels": LABELS}
    body = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata, "spec": template["spec"]}
    await pools.api.create(pools.vm_path, body)
    await pools.made(1)
    await pools.stays(
        "2 VMs, and no owner of the bystander",
        pools.vms,
        lambda seen: seen.keys() == {"pool-0", "bystander"} and not owners_of(seen["bystander"]),
    )


@cases.add("pool-delete", "If a pool is deleted, its VMs are deleted", rules="P6")
async def delete(pools: Pools) -> None:
    await pools.made(2)
    await pools.api.delete(pools.path(NAME))
    await pools.until_equal("no pool", lambda: pools.api.find(pools.path(NAME)), None, within_s=BOOT_S)
    await pools.until_equal("no VM", pools.vms, {}, within_s=BOOT_S)


@cases.add("pool-delete-running", "If a pool of running VMs is deleted, its VMs and VMIs are deleted", rules="P6")
async def delete_running(pools: Pools) -> None:
    await pools.make(2, template=pools.template(running=True))
    await pools.until_ready(2)
    await pools.api.delete(pools.path(NAME))
    await pools.until_equal("no VM", pools.vms, {}, within_s=BOOT_S)
    await pools.until_equal("no VMI", pools.vmis, {}, within_s=BOOT_S)


@cases.add(
    "pool-delete-orphan", "If a pool is deleted with --cascade=orphan, its VMs stay without an owner", rules="P6"
)
async def delete_orphan(pools: Pools) -> None:
    before = await pools.made(2)
    await pools.api.delete(pools.path(NAME), "Orphan")
    await pools.until_equal("no pool", lambda: pools.api.find(pools.path(NAME)), None, within_s=BOOT_S)
    after = await pools.vms()
    require("the same VMs", after.keys() == before.keys(), after)
    left = [owner["name"] for vm in after.values() for owner in owners_of(vm)]
    require("VMs without an owner", not left, left)


@cases.add("pool-orphan-revisions", "A pool deleted with --cascade=orphan leaves no ControllerRevision", rules="P6 P11")
async def orphan_revisions(pools: Pools) -> None:
    await pools.made(1)
    await pools.until("a ControllerRevision", pools.revisions, bool)
    await pools.api.delete(pools.path(NAME), "Orphan")
    await pools.until_equal("no pool", lambda: pools.api.find(pools.path(NAME)), None, within_s=BOOT_S)
    await pools.until_equal("no ControllerRevision", pools.revisions, {})


@cases.add("pool-orphan-delete", "VMs that a deleted pool left can be deleted", rules="P6")
async def orphan_delete(pools: Pools) -> None:
    await pools.made(2)
    await pools.api.delete(pools.path(NAME), "Orphan")
    await pools.until_equal("no pool", lambda: pools.api.find(pools.path(NAME)), None, within_s=BOOT_S)
    for name in await pools.vms():
        await pools.delete_vm(name)
    await pools.until_equal("no VM", pools.vms, {}, within_s=BOOT_S)


def references() -> list[Document]:
    return [
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "password", "secret": {"secretName": "password"}},
        {"name": "userdata", "cloudInitNoCloud": {"secretRef": {"name": "userdata"}}},
    ]


async def names_of_references(pools: Pools) -> dict[str, tuple[str, str, str]]:
    """Return the names of the referenced ConfigMap and Secrets in each VM."""
    found = {}
    for name, vm in (await pools.members()).items():
        volumes = {volume["name"]: volume for volume in vm["spec"]["template"]["spec"]["volumes"]}
        found[name] = (
            volumes["settings"]["configMap"]["name"],
            volumes["password"]["secret"]["secretName"],
            volumes["userdata"]["cloudInitNoCloud"]["secretRef"]["name"],
        )
    return found


@cases.add(
    "pool-references-plain", "Without nameGeneration, all VMs refer to the same ConfigMap and Secrets", rules="P5"
)
async def references_plain(pools: Pools) -> None:
    await pools.made(2, template=pools.template(volumes=references()))
    found = await names_of_references(pools)
    same = ("settings", "password", "userdata")
    require("the names of the template", found == {"pool-0": same, "pool-1": same}, found)


@cases.add("pool-references-secrets", "appendIndexToSecretRefs appends the ordinal to the names of Secrets", rules="P5")
async def references_secrets(pools: Pools) -> None:
    setting = {"appendIndexToSecretRefs": True}
    await pools.made(2, template=pools.template(volumes=references()), nameGeneration=setting)
    found = await names_of_references(pools)
    wanted = {f"pool-{index}": ("settings", f"password-{index}", f"userdata-{index}") for index in (0, 1)}
    require("an ordinal behind the names of Secrets", found == wanted, found)


@cases.add(
    "pool-references-config-maps",
    "appendIndexToConfigMapRefs appends the ordinal to the names of ConfigMaps",
    rules="P5",
)
async def references_config_maps(pools: Pools) -> None:
    setting = {"appendIndexToConfigMapRefs": True}
    await pools.made(2, template=pools.template(volumes=references()), nameGeneration=setting)
    found = await names_of_references(pools)
    wanted = {f"pool-{index}": (f"settings-{index}", "password", "userdata") for index in (0, 1)}
    require("an ordinal behind the names of ConfigMaps", found == wanted, found)


@cases.add("pool-references-sysprep", "References of sysprep volumes stay as written", rules="P5")
async def references_sysprep(pools: Pools) -> None:
    answers = {"name": "answers", "sysprep": {"configMap": {"name": "answers"}}}
    setting = {"appendIndexToConfigMapRefs": True, "appendIndexToSecretRefs": True}
    [vm] = (await pools.made(1, template=pools.template(volumes=[answers]), nameGeneration=setting)).values()
    volumes = {volume["name"]: volume for volume in vm["spec"]["template"]["spec"]["volumes"]}
    name = volumes["answers"]["sysprep"]["configMap"]["name"]
    require("the ConfigMap answers", name == "answers", name)


@cases.add("pool-two-pools", "Two pools with the same VM labels and different names keep their own VMs", rules="P2 P3")
async def two_pools(pools: Pools) -> None:
    first = await pools.made(2)
    await pools.make(2, name="other")
    await pools.until_names(0, 1, name="other")
    await pools.scale(0, "other")
    await pools.until_names(name="other")
    after = await pools.members()
    require("that the first pool keeps its VMs", after.keys() == first.keys(), after)
