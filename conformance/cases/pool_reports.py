"""Cases about the status, conditions, Events, rejections and columns of pools."""

from __future__ import annotations

from conformance.case import Cases, Kind
from conformance.cases.set_reports import check_columns, quiet, until_condition
from conformance.namespace import require
from conformance.pools import NAME, Pools

cases: Cases[Pools] = Cases(Kind.POOLS)


@cases.add("pool-pause", "A paused pool does not scale, and has the condition ReplicaPaused", rules="P17")
async def pause(pools: Pools) -> None:
    before = await pools.made(1)
    await pools.change({"spec": {"paused": True}}, NAME)
    await until_condition(pools, "ReplicaPaused", NAME)
    await pools.scale(3, NAME)
    await pools.stays("no scaling", pools.members, lambda seen: seen.keys() == before.keys())


@cases.add("pool-pause-reason", "The condition ReplicaPaused of a pool has the reason SuccessfulPaused", rules="P17")
async def pause_reason(pools: Pools) -> None:
    await pools.make(0, paused=True)
    found = await until_condition(pools, "ReplicaPaused", NAME)
    require("reason SuccessfulPaused", found.get("reason") == "SuccessfulPaused", found)


@cases.add("pool-pause-update", "A paused pool updates no VM", rules="P17")
async def pause_update(pools: Pools) -> None:
    await pools.made(1)
    await pools.change({"spec": {"paused": True}}, NAME)
    await until_condition(pools, "ReplicaPaused", NAME)
    await pools.relabel_template({"release": "two"})
    await pools.stays(
        "VMs without the new label",
        pools.members,
        lambda seen: not any("release" in vm["metadata"]["labels"] for vm in seen.values()),
    )


@cases.add("pool-resume", "A resumed pool scales, and the condition ReplicaPaused is removed", rules="P17")
async def resume(pools: Pools) -> None:
    await pools.make(2, paused=True)
    await until_condition(pools, "ReplicaPaused", NAME)
    await pools.change({"spec": {"paused": False}}, NAME)
    await pools.until_equal("no condition ReplicaPaused", lambda: pools.condition("ReplicaPaused", NAME), None)
    await pools.until_names(0, 1)


@cases.add("pool-pause-events", "Events report the pause and its end", rules="P17 P18")
async def pause_events(pools: Pools) -> None:
    await pools.make(0, paused=True)
    await pools.until_told(NAME, "SuccessfulPaused")
    await until_condition(pools, "ReplicaPaused", NAME)
    await pools.change({"spec": {"paused": False}}, NAME)
    await pools.until_told(NAME, "SuccessfulResume")


@cases.add("pool-events", "Events report created, updated and deleted VMs", rules="P18")
async def events(pools: Pools) -> None:
    await pools.made(2)
    await pools.until_told(NAME, "SuccessfulCreate")
    await pools.relabel_template({"release": "two"})
    await pools.until_told(NAME, "SuccessfulUpdate")
    await pools.scale(1, NAME)
    await pools.until_told(NAME, "SuccessfulDelete")


@cases.add("pool-failure", "If VMs cannot be created, the condition ReplicaFailure tells the reason", rules="P17")
async def failure(pools: Pools) -> None:
    await forbidden(pools)
    found = await until_condition(pools, "ReplicaFailure", NAME)
    require("reason FailedScaleOut", found.get("reason") == "FailedScaleOut", found)
    require("a message about the quota", "quota" in found.get("message", ""), found)
    await pools.until_told(NAME, "FailedCreate")


@cases.add("pool-failure-event", "One Event has the reason of ReplicaFailure", rules="P17 P18")
async def failure_event(pools: Pools) -> None:
    await forbidden(pools)
    await pools.until_told(NAME, "FailedScaleOut")


@cases.add("pool-recovery", "When the obstacle is gone, the VMs are created and ReplicaFailure is removed", rules="P17")
async def recovery(pools: Pools) -> None:
    await forbidden(pools)
    await until_condition(pools, "ReplicaFailure", NAME)
    await pools.allow()
    await pools.until("2 VMs", pools.members, lambda seen: len(seen) == 2, within_s=120)
    await pools.until_equal("no condition ReplicaFailure", lambda: pools.condition("ReplicaFailure", NAME), None)


async def forbidden(pools: Pools) -> None:
    """Make a pool of 2 VMs in a namespace with a quota of 0."""
    await pools.made(0)
    probe = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "probe"}}
    await pools.forbid("virtualmachines", {**probe, "spec": pools.template()["spec"]}, pools.vm_path)
    await pools.scale(2, NAME)


@cases.add("pool-label-selector", "status.labelSelector is the selector of the spec", rules="P17")
async def label_selector(pools: Pools) -> None:
    await pools.made(1)
    await pools.until(
        "status.labelSelector app=pool",
        lambda: pools.status(NAME),
        lambda seen: seen.get("labelSelector") == "app=pool",
    )


@cases.add("pool-ready-count", "status.readyReplicas counts only VMs that run", rules="P7")
async def ready_count(pools: Pools) -> None:
    await pools.make(2, template=pools.template(running=True))
    await pools.until_ready(2)
    await pools.api.merge(f"{pools.vm_path}/pool-0", {"spec": {"runStrategy": "Halted"}})
    await pools.until_equal("2 VMs, 1 of them ready", lambda: pools.counts(NAME), (2, 1), within_s=90)
    await pools.api.merge(f"{pools.vm_path}/pool-0", {"spec": {"runStrategy": "Always"}})
    await pools.until_ready(2)


@cases.add("pool-columns", "kubectl get shows the columns Desired, Current, Ready and Age", rules="P7")
async def columns(pools: Pools) -> None:
    await pools.make(2, template=pools.template(running=True))
    await pools.until_ready(2)
    await check_columns(pools, NAME, [NAME, 2, 2, 2])


@cases.add("pool-short-name", "kubectl knows a short name of the kind", rules="P7")
async def short_name(pools: Pools) -> None:
    short = pools.subject.short_names
    require("the short name vmpool or hvmpool", {"vmpool", "hvmpool"} & {*short}, short)


@cases.add(
    "pool-selector-mismatch", "A selector that does not match the template is refused or changes nothing", rules="P1"
)
async def selector_mismatch(pools: Pools) -> None:
    document = pools.document(2, selector={"matchLabels": {"app": "other"}})
    if not await pools.refused("a selector that does not match", document):
        await pools.stays("no VM", pools.vms, lambda seen: not seen)


@cases.add("pool-unknown-disk", "A disk without a volume is refused with the name of the field", rules="P1")
async def unknown_disk(pools: Pools) -> None:
    template = pools.template()
    template["spec"]["template"]["spec"]["domain"]["devices"]["disks"].append({"name": "testdisk", "disk": {}})
    refused = await pools.refused("a disk without a volume", pools.document(0, template=template), "spec.virtual")
    require("a refusal of a disk without a volume", refused, "the pool was created")


@cases.add("pool-silence", "At rest, the status of a pool is not written", rules="P17")
async def silence(pools: Pools) -> None:
    await pools.make(2, template=pools.template(running=True))
    await pools.until_ready(2)
    await quiet(pools, NAME)
