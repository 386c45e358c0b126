"""Cases about a new template of a pool: VMs, VMIs, maxUnavailable and revisions."""

import asyncio
from typing import Any

from conformance.api import condition_of, is_ready, is_terminating, labels_of, require, uids_by_name, uids_of
from conformance.case import Cases, Document, Kind, Origin, Requirement, Skip, Unmet
from conformance.namespace import BOOT_S
from conformance.pools import NAME, Pools

cases: Cases[Pools] = Cases(Kind.POOLS)
NEW = {"release": "two"}
UPDATE_S = 120.0


def has_new_label(document: Document) -> bool:
    return labels_of(document).get("release") == "two"


async def running(pools: Pools, replicas: int = 1, **spec: Document) -> dict[str, Document]:
    """Create a pool of running VMs, and return the VMIs."""
    labels = {"tier": "front"}
    await pools.make(replicas, template=pools.template(running=True, labels=labels), **spec)
    await pools.until_ready(replicas)
    return await pools.vmis()


async def changed(pools: Pools, replicas: int = 1, **spec: Document) -> dict[str, Document]:
    """Create a pool of running VMs, and add the new label to its VMI template. Return the VMIs before the change."""
    before = await running(pools, replicas, **spec)
    await pools.relabel_template(NEW, vmi=True)
    return before


async def stay(pools: Pools, vmis: dict[str, Document]) -> None:
    """Check that the pool has the same VMIs for some time."""
    await pools.stays("the same VMIs", pools.vmis, lambda seen: uids_by_name(seen) == uids_by_name(vmis), for_s=5)


async def until_vms_have_label(pools: Pools) -> None:
    """Wait until the VMI template of each VM has the new label."""
    await pools.until(
        "the new VMI template in each VM",
        pools.members,
        lambda seen: all(has_new_label(vm["spec"]["template"]) for vm in seen.values()),
        within_s=UPDATE_S,
    )


@cases.add("P12 P13")
async def update_vm_labels(pools: Pools) -> None:
    """New labels of the VMs are added, and no VMI restarts."""
    before = await running(pools, 1)
    await pools.relabel_template(NEW)
    await pools.until("the new label on each VM", pools.members, lambda seen: all(map(has_new_label, seen.values())))
    await stay(pools, before)


@cases.add("P12 P13")
async def update_default(pools: Pools) -> None:
    """Without updateStrategy, a new VMI template restarts the VMIs."""
    before = await changed(pools)
    await until_restarted(pools, before)


@cases.add("P12 P13")
async def update_proactive(pools: Pools) -> None:
    """With proactive updates, a new VMI template restarts the VMIs."""
    before = await changed(pools, replicas=2, updateStrategy={"proactive": {}})
    await until_restarted(pools, before)


async def until_restarted(pools: Pools, before: dict[str, Document]) -> None:
    """Wait until each VM has a new, ready VMI with the new label."""
    old = uids_of(before)
    await until_vms_have_label(pools)
    await pools.until(
        "a new ready VMI with the new label for each VM",
        pools.vmis,
        lambda seen: (
            seen.keys() == before.keys()
            and all(map(has_new_label, seen.values()))
            and all(map(is_ready, seen.values()))
            and not old & uids_of(seen)
        ),
        within_s=BOOT_S,
    )


@cases.add("P13")
async def update_opportunistic(pools: Pools) -> None:
    """With opportunistic updates, VMs change and VMIs do not restart."""
    before = await changed(pools, updateStrategy={"opportunistic": {}})
    await until_vms_have_label(pools)
    await stay(pools, before)


@cases.add("P13")
async def update_opportunistic_restart(pools: Pools) -> None:
    """With opportunistic updates, a restarted VMI has the new template."""
    before = await changed(pools, updateStrategy={"opportunistic": {}})
    await until_vms_have_label(pools)
    await pools.api.delete(f"{pools.vmi_path}/pool-0")
    await until_restarted(pools, before)


@cases.add("P12")
async def update_unmanaged(pools: Pools) -> None:
    """With unmanaged updates, neither VMs nor VMIs change."""
    before = await changed(pools, updateStrategy={"unmanaged": {}})
    await stays_old(pools, before)


async def stays_old(pools: Pools, before: dict[str, Document]) -> None:
    await pools.stays(
        "VMs with the old template",
        pools.members,
        lambda seen: not any(has_new_label(vm["spec"]["template"]) for vm in seen.values()),
        for_s=4,
    )
    require("the same VMIs", uids_by_name(await pools.vmis()) == uids_by_name(before), await pools.vmis())


def selected_by(labels: dict[str, str]) -> Document:
    selectors = {"labelSelector": {"matchLabels": labels}}
    return {"proactive": {"selectionPolicy": {"selectors": selectors}}}


@cases.add("P12")
async def update_selected(pools: Pools) -> None:
    """VMs that the update's selector matches are updated."""
    before = await changed(pools, updateStrategy=selected_by({"tier": "front"}))
    await until_restarted(pools, before)


@cases.add("P12")
async def update_not_selected(pools: Pools) -> None:
    """VMs that the update's selector does not match are not updated."""
    before = await changed(pools, updateStrategy=selected_by({"tier": "back"}))
    await stays_old(pools, before)


@cases.add("P4 P12")
async def new_vm_new_template(pools: Pools) -> None:
    """A VM that is created after the change has the new template."""
    await pools.made(1, updateStrategy={"unmanaged": {}})
    await pools.relabel_template(NEW, vmi=True)
    await pools.scale(2)
    found = await pools.until_names(0, 1)
    new = [name for name, vm in found.items() if has_new_label(vm["spec"]["template"])]
    require("the new label only on pool-1", new == ["pool-1"], new)


@cases.add("P14")
async def max_unavailable(pools: Pools) -> None:
    """During an update, at most maxUnavailable VMs are not ready."""
    wanted, allowed = 4, 1
    before = await running(pools, wanted, maxUnavailable=allowed)  # type: ignore[arg-type]
    listed = await pools.api.get(pools.vmi_path)
    now = {item["metadata"]["name"]: item for item in listed["items"]}
    require("that nothing restarts before the change", uids_by_name(now) == uids_by_name(before), now)
    worst = 0
    try:
        async with (
            asyncio.timeout(wanted * BOOT_S * pools.conditions.patience),
            pools.api.watch(pools.vmi_path, listed["metadata"]["resourceVersion"]) as events,
        ):
            await pools.relabel_template(NEW, vmi=True)
            async for event in events:
                vmi = event["object"]
                now[vmi["metadata"]["name"]] = {} if event["type"] == "DELETED" else vmi
                present = [each for each in now.values() if each and is_ready(each) and not is_terminating(each)]
                worst = max(worst, wanted - len(present))
                if len(present) == wanted and all(map(has_new_label, present)):
                    break
    except TimeoutError:
        raise Unmet("an update of all VMs", f"{sum(map(has_new_label, now.values()))} updated") from None
    require(f"at most {allowed} of {wanted} VMs not ready", worst <= allowed, f"{worst} of {wanted} not ready at once")


@cases.add("P11")
async def revision(pools: Pools) -> None:
    """A ControllerRevision stores the template of the VMs."""
    [vm] = (await pools.made(1)).values()
    label = labels_of(vm).get("kubevirt.io/vm-pool-revision-name")
    found = await pools.revisions()
    require("a ControllerRevision with the name in the VM's label", label in found, [label, *found])
    owners = [owner["name"] for owner in found[str(label)]["metadata"].get("ownerReferences") or ()]
    require("a ControllerRevision of the pool", owners == [NAME], owners)


@cases.add("P11")
async def revision_pruned(pools: Pools) -> None:
    """ControllerRevisions that no VM uses are deleted after some updates."""
    await pools.made(1)
    for number in range(8):
        text = str(number)
        await pools.relabel_template({"number": text})
        await pools.until(
            f"the label number={text} on the VM",
            pools.members,
            lambda seen, text=text: all(labels_of(vm).get("number") == text for vm in seen.values()),  # type: ignore[misc]
        )
    await pools.until("at most 6 ControllerRevisions", pools.revisions, lambda seen: 1 <= len(seen) <= 6)


@cases.add("P11", origin=Origin.VMHERD)
async def revision_scaling(pools: Pools) -> None:
    """Scaling makes no ControllerRevision."""
    await pools.made(1)
    before = await pools.revisions()
    await pools.scale(3)
    await pools.until_names(0, 1, 2)
    after = await pools.revisions()
    require("the same ControllerRevisions", after.keys() == before.keys(), [*after])


@cases.add("P12", origin=Origin.VMHERD)
async def update_keeps_changes(pools: Pools) -> None:
    """An update keeps what a user changed in a VM and the template did not."""
    await pools.made(1)
    mine = {"spec": {"template": {"spec": {"nodeSelector": {"example.org/zone": "a"}}}}}
    await pools.api.merge(f"{pools.vm_path}/pool-0", mine)
    await pools.relabel_template(NEW, vmi=True)
    await until_vms_have_label(pools)
    spec = (await pools.vm("pool-0"))["spec"]["template"]["spec"]
    require("the user's nodeSelector", spec.get("nodeSelector") == {"example.org/zone": "a"}, spec.get("nodeSelector"))


@cases.add("P12", origin=Origin.VMHERD)
async def update_keeps_stopped(pools: Pools) -> None:
    """An update does not start a VM that its user stopped."""
    await running(pools, 1)
    await pools.api.merge(f"{pools.vm_path}/pool-0", {"spec": {"runStrategy": "Halted"}})
    await pools.until_equal("no VMI", pools.vmis, {}, within_s=BOOT_S)
    await pools.relabel_template(NEW, vmi=True)
    await until_vms_have_label(pools)
    await pools.stays("no VMI", pools.vmis, lambda seen: not seen)


@cases.add("P14", origin=Origin.VMHERD)
async def partition(pools: Pools) -> None:
    """With vmherd.dev/partition, lower ordinals keep their template."""
    await pools.made(3, annotations={"vmherd.dev/partition": "2"})
    await pools.relabel_template(NEW)
    await pools.until("the new label on pool-2", lambda: pools.vm("pool-2"), has_new_label)
    await pools.stays(
        "no new label below the partition",
        pools.members,
        lambda seen: [name for name, vm in seen.items() if has_new_label(vm)] == ["pool-2"],
    )


@cases.add("P14", origin=Origin.VMHERD)
async def partition_steps(pools: Pools) -> None:
    """An update in steps goes on when the VMs of a step have been ready for its pause."""
    await running(pools, 2, annotations={"vmherd.dev/partition": "1:5s,0"})
    await pools.relabel_template(NEW, vmi=True)

    def updated(seen: dict[str, Document]) -> list[str]:
        return [name for name, vm in seen.items() if has_new_label(vm["spec"]["template"])]

    await pools.until("the new template in pool-1 only", pools.members, lambda seen: updated(seen) == ["pool-1"])
    await pools.until_told("RolloutStep", within_s=BOOT_S)
    await until_vms_have_label(pools)


@cases.add("P13", origin=Origin.VMHERD, requires=(Requirement.LIVE,))
async def live_placement(pools: Pools) -> None:
    """A new node selector reaches a running VM without a restart."""
    before = await running(pools, 1)
    selector = {"kubernetes.io/os": "linux"}
    template = {"spec": {"template": {"spec": {"nodeSelector": selector}}}}
    await pools.change({"spec": {"virtualMachineTemplate": template}})
    await pools.until(
        "the node selector in the running VMI",
        pools.vmis,
        lambda seen: all(vmi["spec"].get("nodeSelector") == selector for vmi in seen.values()),
        within_s=UPDATE_S,
    )
    await stay(pools, before)


async def with_one_socket(pools: Pools, template: Document, **options: Any) -> dict[str, Document]:
    """Create a pool of a running VM with one CPU socket. Return the VMIs."""
    pools.vmi_spec_in(template)["domain"]["cpu"] = {"sockets": 1, "cores": 1, "threads": 1}
    await pools.make(1, template=template, **options)
    await pools.until_ready(1)
    return await pools.vmis()


async def get_two_sockets(pools: Pools) -> None:
    """Change the template to two CPU sockets, and wait until the guest of a ready VM has them."""
    domain = {"cpu": {"sockets": 2}}
    await pools.change({"spec": {"virtualMachineTemplate": {"spec": {"template": {"spec": {"domain": domain}}}}}})

    def sockets(vmi: Document) -> object:
        return (vmi["status"].get("currentCPUTopology") or {}).get("sockets")

    await pools.until(
        "two sockets in the guest of a ready VM",
        pools.vmis,
        lambda seen: [(sockets(vmi), is_ready(vmi)) for vmi in seen.values()] == [(2, True)],
        within_s=UPDATE_S + BOOT_S,
    )


@cases.add("P13", origin=Origin.VMHERD)
async def live_size(pools: Pools) -> None:
    """More CPU sockets reach each guest, by a live migration or by a restart."""
    await with_one_socket(pools, pools.template(running=True))
    await get_two_sockets(pools)


@cases.add("P13", origin=Origin.VMHERD, requires=(Requirement.LIVE,))
async def live_migrate(pools: Pools) -> None:
    """With vmherd.dev/migrate, more CPU sockets reach a guest that runs on, and no migration is left."""
    template = pools.template(running=True)
    spec = pools.vmi_spec_in(template)
    spec["networks"] = [{"name": "default", "pod": {}}]
    spec["domain"]["devices"]["interfaces"] = [{"name": "default", "masquerade": {}}]
    before = await with_one_socket(pools, template, annotations={"vmherd.dev/migrate": "true"})
    if "InvalidAnnotation" in await pools.reasons():
        raise Skip("the controller runs without --migrations")
    movable = [condition_of(vmi, "LiveMigratable") for vmi in before.values()]
    if any(each is not None and each["status"] == "False" for each in movable):
        raise Skip("the VMs of this cluster cannot migrate")
    await get_two_sockets(pools)
    await pools.until("no live migration", pools.migrations, lambda seen: not seen, within_s=UPDATE_S)
    await stay(pools, before)


@cases.add("P13", origin=Origin.VMHERD, requires=(Requirement.LIVE,))
async def update_undone(pools: Pools) -> None:
    """A template that returns before the restart restarts no VM."""
    before = await running(pools, 1, updateStrategy={"opportunistic": {}})

    async def is_required() -> bool:
        conditions = (await pools.vm("pool-0"))["status"].get("conditions") or ()
        return any(each["type"] == "RestartRequired" and each["status"] == "True" for each in conditions)

    async def change(period_s: int, **spec: Document) -> None:
        template = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": period_s}}}}
        await pools.change({"spec": {"virtualMachineTemplate": template, **spec}})

    [vmi] = before.values()
    old = vmi["spec"]["terminationGracePeriodSeconds"]
    await change(old + 1)
    await pools.until_equal("a VM that needs a restart", is_required, True, within_s=UPDATE_S)
    await change(old, updateStrategy={"opportunistic": None, "proactive": {}})
    await pools.until_equal("a VM that needs no restart", is_required, False, within_s=UPDATE_S)
    await stay(pools, before)


@cases.add("P14", origin=Origin.VMHERD)
async def update_keeps_ended(pools: Pools) -> None:
    """An update does not start a VM with RerunOnFailure that was shut down."""
    template = pools.template(running=True)
    template["spec"]["runStrategy"] = "RerunOnFailure"
    await pools.make(1, template=template)
    await pools.until_ready(1)
    await pools.api.delete(f"{pools.vmi_path}/pool-0")
    await pools.until_equal("no VMI", pools.vmis, {}, within_s=BOOT_S)
    await pools.relabel_template(NEW, vmi=True)
    await until_vms_have_label(pools)
    await pools.stays("no VMI", pools.vmis, lambda seen: not seen)
