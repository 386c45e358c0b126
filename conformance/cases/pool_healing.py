"""Cases about autohealing, pause and reports of pools. A VM fails by `FAILING`, or without its disk's claim."""

from conformance.api import is_terminating, require, uids_of
from conformance.case import Cases, Document, Kind, Origin, Requirement
from conformance.pools import LABELS, Pools
from conformance.templates import FAILING, LOST

cases: Cases[Pools] = Cases(Kind.POOLS)
HEALED_S = 300.0
"""The time limit for the healing of a VM. KubeVirt waits up to a minute before the third start of a failing VM."""

MISSING: Document = {"name": "absent", "persistentVolumeClaim": {"claimName": "absent"}}


async def until_failing(pools: Pools) -> None:
    await pools.until(
        "2 failed starts of pool-0", lambda: pools.vm("pool-0"), lambda vm: _failures(vm) >= 2, within_s=HEALED_S
    )


@cases.add("P15")
async def heal_failures(pools: Pools) -> None:
    """A VM that fails to start several times is created again under its name."""
    template = pools.template(running=True, annotations=FAILING)
    before = await pools.made(1, template=template, autohealing={"startUpFailureThreshold": 2})
    await pools.until_new("pool-0", before, within_s=HEALED_S)


@cases.add("P15")
async def heal_duration(pools: Pools) -> None:
    """A VM that cannot start for minFailingToStartDuration is created again."""
    template = pools.template(running=True, volumes=[MISSING])
    healing = {"minFailingToStartDuration": "10s"}
    before = await pools.made(1, template=template, autohealing=healing)
    await pools.until_new("pool-0", before, within_s=HEALED_S)


@cases.add("P15")
async def heal_off(pools: Pools) -> None:
    """Without spec.autohealing, a failing VM stays."""
    template = pools.template(running=True, annotations=FAILING)
    [vm] = (await pools.made(1, template=template)).values()
    await until_failing(pools)
    uid = vm["metadata"]["uid"]
    await pools.stays("the same VM", lambda: pools.vm("pool-0"), lambda seen: seen["metadata"]["uid"] == uid)


@cases.add("P15 P2", origin=Origin.VMHERD)
async def heal_members_only(pools: Pools) -> None:
    """Healing never deletes a VM that is no member."""
    failing = pools.template(running=True, annotations=FAILING)
    bystander = pools.new_member("bystander") | {"spec": failing["spec"]}
    bystander["metadata"]["labels"] = LABELS
    made = await pools.api.create(pools.vm_path, bystander)
    await pools.made(1, autohealing={"startUpFailureThreshold": 1})
    uid = made["metadata"]["uid"]

    def is_deleted(seen: dict[str, Document]) -> bool:
        found = seen.get("bystander")
        return found is None or found["metadata"]["uid"] != uid or is_terminating(found)

    found = await pools.until(
        "2 failed starts of the bystander",
        pools.vms,
        lambda seen: is_deleted(seen) or _failures(seen["bystander"]) >= 2,
        within_s=HEALED_S,
    )
    require("that the bystander stays", not is_deleted(found), found)


def _failures(vm: Document) -> int:
    failure = (vm.get("status") or {}).get("startFailure") or {}
    return int(failure.get("consecutiveFailCount") or 0)


@cases.add("P28", origin=Origin.VMHERD, requires=(Requirement.SIMULATOR,))
async def substitute_lost(pools: Pools) -> None:
    """With vmherd.dev/substitute-lost-after-seconds, a VM whose node does not answer stays and gets a substitute."""
    substitutes = {"vmherd.dev/substitute-lost-after-seconds": "2"}
    before = await pools.made(2, template=pools.template(running=True), annotations=substitutes)
    await pools.until_ready(2)
    await pools.api.merge(f"{pools.vmi_path}/pool-0", {"metadata": {"annotations": LOST}})
    after = await pools.until_names(0, 1, 2)
    require("that pool-0 and pool-1 stay", uids_of(before) <= uids_of(after), after)


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
