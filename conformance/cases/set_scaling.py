"""Cases about the number of VMIs of a replica set."""

from conformance.api import is_ready, is_terminating, labels_of, require, uids_of
from conformance.case import Cases, Document, Kind, Origin, Requirement
from conformance.namespace import BOOT_S
from conformance.replica_sets import ReplicaSets
from conformance.templates import FAILING, FINISHING, NEVER_READY, UNKNOWN

cases: Cases[ReplicaSets] = Cases(Kind.SETS)


@cases.add("R4")
async def scale_out(sets: ReplicaSets) -> None:
    """A higher spec.replicas adds VMIs and keeps the others."""
    before = await sets.made(2)
    await sets.scale(5)
    after = await sets.until_members(5)
    require(f"that {', '.join(before)} stay", before.keys() <= after.keys(), after)


@cases.add("R3")
async def replace_deleted(sets: ReplicaSets) -> None:
    """A VMI that a user deletes is replaced by a new VMI."""
    before = await sets.made(2)
    gone, kept = sorted(before)
    await sets.api.delete(f"{sets.vmi_path}/{gone}")
    uid = before[gone]["metadata"]["uid"]
    after = await sets.until(
        "a new VMI beside the old one", sets.members, lambda seen: len(seen) == 2 and uid not in uids_of(seen)
    )
    require(f"that {kept} stays", kept in after, after)


@cases.add("R3")
async def replace_terminating(sets: ReplicaSets) -> None:
    """A VMI that is being deleted does not count, and is replaced at once."""
    slow, kept = sorted(await sets.made(2))
    path = f"{sets.vmi_path}/{slow}"
    await sets.hold(path)
    try:
        await sets.api.delete(path)
        after = await sets.until_members(2)
        require(f"that {kept} stays", kept in after, after)
        found = await sets.api.find(path)
        require(f"that {slow} still terminates", found is not None and is_terminating(found), found or "it is gone")
        await sets.stays("one replacement", sets.vmis, lambda seen: len(seen) == 3 and after.keys() <= seen.keys())
    finally:
        await sets.let_go(path)


async def until_replaced(sets: ReplicaSets, annotations: dict[str, str]) -> None:
    """Make a set whose VMIs end because of these annotations, and wait until its VMI is replaced."""
    await sets.make(1, template=sets.template(annotations=annotations))
    first = await sets.until("a VMI", sets.vmis, lambda seen: len(seen) == 1)
    await sets.until(
        "another VMI", sets.vmis, lambda seen: seen and not uids_of(seen) & uids_of(first), within_s=BOOT_S
    )


@cases.add("R3 R7")
async def replace_failed(sets: ReplicaSets) -> None:
    """A VMI that fails to start is deleted and replaced."""
    await until_replaced(sets, FAILING)
    await sets.scale(0)
    await sets.until_equal("no VMI", sets.vmis, {}, within_s=BOOT_S)


@cases.add("R3 R7", requires=(Requirement.SIMULATOR,))
async def replace_finished(sets: ReplicaSets) -> None:
    """A VMI whose guest shuts down is deleted and replaced."""
    await until_replaced(sets, FINISHING)


@cases.add("R3 R7", requires=(Requirement.SIMULATOR,))
async def replace_unknown(sets: ReplicaSets) -> None:
    """A VMI in phase Unknown is deleted and replaced."""
    await until_replaced(sets, UNKNOWN)


@cases.add("R3 R11", requires=(Requirement.SIMULATOR,))
async def ready_count(sets: ReplicaSets) -> None:
    """status.readyReplicas counts only VMIs that are ready."""
    await sets.make(2)
    ready = await sets.until_ready(2)
    await sets.change({"spec": {"template": {"metadata": {"annotations": NEVER_READY}}}})
    await sets.scale(3)
    await sets.until_equal("3 VMIs, 2 of them ready", sets.counts, (3, 2))
    await sets.api.merge(f"{sets.vmi_path}/{min(ready)}", {"metadata": {"annotations": NEVER_READY}})
    await sets.until_equal("3 VMIs, 1 of them ready", sets.counts, (3, 1))
    require("that no VMI is replaced", ready.keys() <= (await sets.members()).keys(), await sets.members())


@cases.add("R6", origin=Origin.VMHERD)
async def remove_mark(sets: ReplicaSets) -> None:
    """Scale-in deletes VMIs with vmherd.dev/remove first."""
    marked = sorted(await sets.made(4))[:2]
    for name in marked:
        await sets.api.merge(f"{sets.vmi_path}/{name}", {"metadata": {"annotations": {"vmherd.dev/remove": "true"}}})
    await sets.scale(2)
    after = await sets.until_members(2)
    require(f"that {', '.join(marked)} are deleted", not after.keys() & {*marked}, after)


@cases.add("R14")
async def template_change(sets: ReplicaSets) -> None:
    """A new template is used for new VMIs only."""
    before = await sets.made(2)
    await sets.change({"spec": {"template": {"metadata": {"labels": {"release": "two"}}}}})
    await sets.stays("no change of VMIs", sets.members, lambda seen: seen.keys() == before.keys())
    await sets.scale(3)
    after = await sets.until_members(3)
    require("that the earlier VMIs stay", before.keys() <= after.keys(), after)
    releases = {name: labels_of(vmi).get("release") for name, vmi in after.items()}
    require("the new label only on the new VMI", [*releases.values()].count("two") == 1, releases)


@cases.add("R14", origin=Origin.VMHERD)
async def rolling_update(sets: ReplicaSets) -> None:
    """With vmherd.dev/rolling-update, a new template replaces all VMIs."""
    before = await sets.made(2, annotations={"vmherd.dev/rolling-update": "maxUnavailable=1"})
    await sets.until_ready(2)
    await sets.change({"spec": {"template": {"metadata": {"labels": {"release": "two"}}}}})
    await sets.until(
        "2 new VMIs", sets.members, lambda seen: len(seen) == 2 and not uids_of(seen) & uids_of(before), within_s=BOOT_S
    )


@cases.add("R14", origin=Origin.VMHERD)
async def surge(sets: ReplicaSets) -> None:
    """With a surge, no old VMI leaves before the VMI that replaces it is ready."""
    limits = "maxSurge=1,maxUnavailable=0"
    before = await sets.made(2, annotations={"vmherd.dev/rolling-update": limits})
    await sets.until_ready(2)
    await sets.change({"spec": {"template": {"metadata": {"labels": {"release": "two"}}}}})

    def is_replaced(seen: dict[str, Document]) -> bool:
        ready = [vmi for vmi in seen.values() if is_ready(vmi)]
        require("2 or more ready VMIs and at most 3 VMIs", len(ready) >= 2 and len(seen) <= 3, seen)
        return len(seen) == 2 and not uids_of(seen) & uids_of(before)

    await sets.until("2 new VMIs, one after the other", sets.members, is_replaced, within_s=2 * BOOT_S)
