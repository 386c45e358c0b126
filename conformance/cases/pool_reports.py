"""Cases about the status, conditions, Events, rejections and columns of pools."""

from conformance.case import Cases, Kind
from conformance.pools import Pools

cases: Cases[Pools] = Cases(Kind.POOLS)


@cases.add("P17")
async def pause_update(pools: Pools) -> None:
    """A paused pool updates no VM."""
    await pools.made(1)
    await pools.pause()
    await pools.relabel_template({"release": "two"})
    await pools.stays(
        "VMs without the new label",
        pools.members,
        lambda seen: not any("release" in vm["metadata"]["labels"] for vm in seen.values()),
    )


@cases.add("P18")
async def events(pools: Pools) -> None:
    """Events report created, updated and deleted VMs."""
    await pools.made(2)
    await pools.until_told("SuccessfulCreate")
    await pools.relabel_template({"release": "two"})
    await pools.until_told("SuccessfulUpdate")
    await pools.scale(1)
    await pools.until_told("SuccessfulDelete")


@cases.add("P7")
async def ready_count(pools: Pools) -> None:
    """status.readyReplicas counts only VMs that run."""
    await pools.make(2, template=pools.template(running=True))
    await pools.until_ready(2)
    await pools.api.merge(f"{pools.vm_path}/pool-0", {"spec": {"runStrategy": "Halted"}})
    await pools.until_equal("2 VMs, 1 of them ready", pools.counts, (2, 1), within_s=90)
    await pools.api.merge(f"{pools.vm_path}/pool-0", {"spec": {"runStrategy": "Always"}})
    await pools.until_ready(2)
