"""Cases about the number of VMIs of a replica set."""

from __future__ import annotations

from conformance.api import is_terminating, labels_of, uids_of
from conformance.case import Cases, Kind, Origin, Requirement
from conformance.namespace import BOOT_S, require
from conformance.replica_sets import NAME, ReplicaSets
from conformance.templates import FAILING, FINISHING, NEVER_READY, UNKNOWN

cases: Cases[ReplicaSets] = Cases(Kind.SETS)


@cases.add("set-bring-up", "A new set starts its VMIs, and all become ready", rules="R3 R4 R11")
async def bring_up(sets: ReplicaSets) -> None:
    await sets.make(3)
    await sets.until_ready(3)


@cases.add("set-default-replicas", "A set without spec.replicas has one VMI", rules="R4")
async def default_replicas(sets: ReplicaSets) -> None:
    await sets.make(None)
    await sets.until_members(1)


@cases.add("set-scale-out", "A higher spec.replicas adds VMIs and keeps the others", rules="R4")
async def scale_out(sets: ReplicaSets) -> None:
    before = await sets.made(2)
    await sets.scale(5, NAME)
    after = await sets.until_members(5)
    require(f"that {', '.join(before)} stay", before.keys() <= after.keys(), after)


@cases.add("set-scale-in", "A lower spec.replicas deletes the surplus VMIs", rules="R6")
async def scale_in(sets: ReplicaSets) -> None:
    before = await sets.made(4)
    await sets.scale(1, NAME)
    after = await sets.until_members(1)
    require("one of the earlier VMIs", after.keys() <= before.keys(), after)


@cases.add("set-scale-to-zero", "With spec.replicas 0, all VMIs are deleted", rules="R6")
async def scale_to_zero(sets: ReplicaSets) -> None:
    await sets.made(2)
    await sets.scale(0, NAME)
    await sets.until_members(0)
    await sets.until_equal("no VMI", sets.vmis, {}, within_s=BOOT_S)


@cases.add("set-scale-subresource", "The subresource scale changes the number of VMIs, as kubectl scale", rules="R11")
async def scale_subresource(sets: ReplicaSets) -> None:
    await sets.made(1)
    await sets.scale_by_subresource(3, NAME)
    await sets.until_members(3)
    await sets.scale_by_subresource(2, NAME)
    await sets.until_members(2)


@cases.add("set-scale-read", "The subresource scale tells the number and the selector of the VMIs", rules="R11")
async def scale_read(sets: ReplicaSets) -> None:
    await sets.made(2)

    async def read() -> tuple[object, ...]:
        scale = await sets.api.get(sets.path(NAME, "scale"))
        status = scale["status"]
        return scale["spec"]["replicas"], status.get("replicas"), status.get("selector")

    await sets.until_equal("2 wanted, 2 present, selector app=herd", read, (2, 2, "app=herd"))


@cases.add("set-autoscaler", "A HorizontalPodAutoscaler (autoscaling/v2) scales a set", rules="R11")
async def autoscaler(sets: ReplicaSets) -> None:
    await sets.made(1)
    await sets.autoscale(3, NAME)
    await sets.until("3 VMIs", lambda: sets.members(NAME), lambda seen: len(seen) == 3, within_s=90)
    await sets.until_members(3)


@cases.add("set-replace-deleted", "A VMI that a user deletes is replaced by a new VMI", rules="R3")
async def replace_deleted(sets: ReplicaSets) -> None:
    before = await sets.made(2)
    gone, kept = sorted(before)
    await sets.api.delete(f"{sets.vmi_path}/{gone}")
    uid = before[gone]["metadata"]["uid"]
    after = await sets.until(
        "a new VMI beside the old one", sets.members, lambda seen: len(seen) == 2 and uid not in uids_of(seen)
    )
    require(f"that {kept} stays", kept in after, after)


@cases.add("set-replace-terminating", "A VMI that is being deleted does not count, and is replaced at once", rules="R3")
async def replace_terminating(sets: ReplicaSets) -> None:
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


@cases.add("set-replace-failed", "A VMI that fails to start is deleted and replaced", rules="R3 R7")
async def replace_failed(sets: ReplicaSets) -> None:
    await sets.make(1, template=sets.template(annotations=FAILING))
    first = await sets.until("a VMI", sets.vmis, lambda seen: len(seen) == 1)
    await sets.until(
        "another VMI", sets.vmis, lambda seen: seen and not uids_of(seen) & uids_of(first), within_s=BOOT_S
    )
    await sets.scale(0, NAME)
    await sets.until_equal("no VMI", sets.vmis, {}, within_s=BOOT_S)


@cases.add(
    "set-replace-finished",
    "A VMI whose guest shuts down is deleted and replaced",
    rules="R3 R7",
    requires=(Requirement.SIMULATOR,),
)
async def replace_finished(sets: ReplicaSets) -> None:
    await sets.make(1, template=sets.template(annotations=FINISHING))
    first = await sets.until("a VMI", sets.vmis, lambda seen: len(seen) == 1)
    await sets.until("another VMI", sets.vmis, lambda seen: seen and not uids_of(seen) & uids_of(first))


@cases.add(
    "set-replace-unknown",
    "A VMI in phase Unknown is deleted and replaced",
    rules="R3 R7",
    requires=(Requirement.SIMULATOR,),
)
async def replace_unknown(sets: ReplicaSets) -> None:
    await sets.make(1, template=sets.template(annotations=UNKNOWN))
    first = await sets.until("a VMI", sets.vmis, lambda seen: len(seen) == 1)
    await sets.until("another VMI", sets.vmis, lambda seen: seen and not uids_of(seen) & uids_of(first))


@cases.add(
    "set-ready-count",
    "status.readyReplicas counts only VMIs that are ready",
    rules="R3 R11",
    requires=(Requirement.SIMULATOR,),
)
async def ready_count(sets: ReplicaSets) -> None:
    await sets.make(2)
    ready = await sets.until_ready(2)
    await sets.change({"spec": {"template": {"metadata": {"annotations": NEVER_READY}}}}, NAME)
    await sets.scale(3, NAME)
    await sets.until_equal("3 VMIs, 2 of them ready", lambda: sets.counts(NAME), (3, 2))
    await sets.api.merge(f"{sets.vmi_path}/{min(ready)}", {"metadata": {"annotations": NEVER_READY}})
    await sets.until_equal("3 VMIs, 1 of them ready", lambda: sets.counts(NAME), (3, 1))
    require("that no VMI is replaced", ready.keys() <= (await sets.members()).keys(), await sets.members())


@cases.add(
    "set-remove-mark",
    "Scale-in deletes VMIs with vmherd.dev/remove first",
    rules="R6",
    origin=Origin.VMHERD,
)
async def remove_mark(sets: ReplicaSets) -> None:
    marked = sorted(await sets.made(4))[:2]
    for name in marked:
        await sets.api.merge(f"{sets.vmi_path}/{name}", {"metadata": {"annotations": {"vmherd.dev/remove": "true"}}})
    await sets.scale(2, NAME)
    after = await sets.until_members(2)
    require(f"that {', '.join(marked)} are deleted", not after.keys() & {*marked}, after)


@cases.add("set-protect-mark", "Scale-in never deletes a VMI with vmherd.dev/protect", rules="R6", origin=Origin.VMHERD)
async def protect_mark(sets: ReplicaSets) -> None:
    kept = min(await sets.made(3))
    await sets.api.merge(f"{sets.vmi_path}/{kept}", {"metadata": {"annotations": {"vmherd.dev/protect": "true"}}})
    await sets.scale(0, NAME)
    await sets.until("only the protected VMI", sets.members, lambda seen: [*seen] == [kept])
    await sets.until_told(NAME, "ProtectedFromDeletion")
    await sets.stays("the protected VMI", sets.members, lambda seen: [*seen] == [kept])
    await sets.api.merge(f"{sets.vmi_path}/{kept}", {"metadata": {"annotations": {"vmherd.dev/protect": "false"}}})
    await sets.until_members(0)


@cases.add("set-template-change", "A new template is used for new VMIs only", rules="R14")
async def template_change(sets: ReplicaSets) -> None:
    before = await sets.made(2)
    await sets.change({"spec": {"template": {"metadata": {"labels": {"release": "two"}}}}}, NAME)
    await sets.stays("no change of VMIs", sets.members, lambda seen: seen.keys() == before.keys())
    await sets.scale(3, NAME)
    after = await sets.until_members(3)
    require("that the earlier VMIs stay", before.keys() <= after.keys(), after)
    releases = {name: labels_of(vmi).get("release") for name, vmi in after.items()}
    require("the new label only on the new VMI", [*releases.values()].count("two") == 1, releases)


@cases.add(
    "set-rolling-update",
    "With vmherd.dev/rolling-update, a new template replaces all VMIs",
    rules="R14",
    origin=Origin.VMHERD,
)
async def rolling_update(sets: ReplicaSets) -> None:
    before = await sets.made(2, annotations={"vmherd.dev/rolling-update": "maxUnavailable=1"})
    await sets.until_ready(2)
    await sets.change({"spec": {"template": {"metadata": {"labels": {"release": "two"}}}}}, NAME)
    await sets.until(
        "2 new VMIs", sets.members, lambda seen: len(seen) == 2 and not uids_of(seen) & uids_of(before), within_s=BOOT_S
    )
