"""Cases about the members and their number, which are the same for replica sets and pools."""

import asyncio

from conformance.api import controller_of, is_ready, labels_of, owners_of, require
from conformance.case import Cases, Document, Kind, Origin, Skip
from conformance.namespace import BOOT_S, SEEN_S, STOPPED_S, CaseNamespace
from conformance.templates import FAILING

cases: Cases[CaseNamespace] = Cases(Kind.SETS, Kind.POOLS)


@cases.add("R3 R4 R11", "P4 P7")
async def bring_up(space: CaseNamespace) -> None:
    """A new {kind} starts its {member}s, and all become ready."""
    await space.make(3, template=space.template(running=True))
    await space.until_ready(3)


@cases.add("R2 R5", "P4")
async def owner_reference(space: CaseNamespace) -> None:
    """The {kind} is the controller of each {member} and has blockOwnerDeletion."""
    [owner] = [controller_of(each) for each in (await space.made(1)).values()]
    uid = (await space.read())["metadata"]["uid"]
    wanted = (space.subject.group, space.subject.kind, space.name, uid)
    seen = owner and (owner["apiVersion"].partition("/")[0], owner["kind"], owner["name"], owner["uid"])
    require(f"the controller {space.subject.kind} {space.name} in {space.subject.group}", seen == wanted, owner)
    require("blockOwnerDeletion", owner and owner.get("blockOwnerDeletion"), owner)


@cases.add("R5", "P4")
async def template_metadata(space: CaseNamespace) -> None:
    """A {member} has the labels and annotations of the template, and a VM has its run strategy."""
    template, labels = space.template(), {**space.labels, "tier": "front"}
    template["metadata"] = {"labels": labels, "annotations": {"example.org/note": "hello"}}
    [member] = (await space.made(1, template=template)).values()
    require("the labels app and tier", labels_of(member).items() >= labels.items(), labels_of(member))
    annotations = member["metadata"].get("annotations") or {}
    require("the annotation example.org/note", annotations.get("example.org/note") == "hello", annotations)
    strategies = [each["spec"].get("runStrategy") for each in (member, template)]
    require("the run strategy of the template", strategies[0] == strategies[1], strategies)


@cases.add("R4", "P4")
async def default_replicas(space: CaseNamespace) -> None:
    """A {kind} without spec.replicas has one {member}."""
    await space.make(None)
    await space.until_members(1)


@cases.add("R6", "P8")
async def scale_in(space: CaseNamespace) -> None:
    """A lower spec.replicas deletes the surplus {member}s."""
    before = await space.made(4)
    await space.scale(1)
    after = await space.until_members(1)
    require(f"one of the earlier {space.member}s", after.keys() <= before.keys(), after)


@cases.add("R6", "P8")
async def scale_to_zero(space: CaseNamespace) -> None:
    """With spec.replicas 0, all {member}s are deleted."""
    await space.made(2)
    await space.scale(0)
    await space.until_members(0)
    await space.until_equal(f"no {space.member}", space.all_members, {}, within_s=BOOT_S)


@cases.add("R6", "P27", origin=Origin.VMHERD)
async def disruption_budget(space: CaseNamespace) -> None:
    """With vmherd.dev/disruption-budget, a PodDisruptionBudget follows the number of {member}s."""
    path = f"/apis/policy/v1/namespaces/{space.namespace}/poddisruptionbudgets"

    async def minima() -> list[object]:
        if "InvalidAnnotation" in await space.reasons():
            raise Skip("the controller runs without --disruption-budgets")
        return [each["spec"].get("minAvailable") for each in await space.api.items(path)]

    asks = {"vmherd.dev/disruption-budget": "1"}
    await space.make(3, template=space.template(running=True), annotations=asks)
    for replicas in (3, 4, 2):
        await space.scale(replicas)
        await space.until_equal("a budget of all but one", minima, [replicas - 1], within_s=BOOT_S)
    await space.change({"metadata": {"annotations": {**dict.fromkeys(asks)}}})
    await space.until_equal("no budget", minima, [])


@cases.add("R11", "P4 P8")
async def scale_subresource(space: CaseNamespace) -> None:
    """The subresource scale changes the number of {member}s, as kubectl scale."""
    await space.made(1)
    for replicas in (3, 2, 0):
        await space.api.merge(space.path(subresource="scale"), {"spec": {"replicas": replicas}})
        await space.until_members(replicas)


@cases.add("R11", "P17")
async def scale_read(space: CaseNamespace) -> None:
    """The subresource scale tells the number and the selector of the {member}s."""
    await space.made(2)
    selector = f"app={space.name}"

    async def read() -> tuple[object, ...]:
        scale = await space.api.get(space.path(subresource="scale"))
        status = scale["status"]
        return scale["spec"]["replicas"], status.get("replicas"), status.get("selector")

    await space.until_equal(f"2 wanted, 2 present, selector {selector}", read, (2, 2, selector))


@cases.add("R11", "P4")
async def autoscaler(space: CaseNamespace) -> None:
    """A HorizontalPodAutoscaler (autoscaling/v2) scales a {kind}."""
    await space.made(1)
    await space.autoscale(3)
    await space.until(f"3 {space.member}s", space.members, lambda seen: len(seen) == 3, within_s=90)
    await space.until_members(3)


@cases.add("R15", "P6")
async def delete(space: CaseNamespace) -> None:
    """If a {kind} is deleted, its {member}s are deleted."""
    await space.made(2)
    await space.delete()
    await space.until_equal(f"no {space.member}", space.all_members, {}, within_s=BOOT_S)


@cases.add("R15", "P6")
async def delete_orphan(space: CaseNamespace) -> None:
    """If a {kind} is deleted with --cascade=orphan, its {member}s stay without an owner."""
    before = await space.made(2)
    await space.delete("Orphan")
    after = await space.all_members()
    require(f"the same {space.member}s", after.keys() == before.keys(), after)
    owners = [owner["name"] for each in after.values() for owner in owners_of(each)]
    require(f"{space.member}s without an owner", not owners, owners)


async def annotate(space: CaseNamespace, member: str, annotations: dict[str, str]) -> None:
    await space.api.merge(f"{space.member_path}/{member}", {"metadata": {"annotations": annotations}})
    await asyncio.sleep(SEEN_S)


async def made_at(space: CaseNamespace, member: str) -> str:
    """Return when the member was created. By the clock of the server, this time is in the past."""
    found = await space.api.get(f"{space.member_path}/{member}")
    return str(found["metadata"]["creationTimestamp"])


async def check_stays(space: CaseNamespace, marks: dict[str, str], end: dict[str, str], reason: str) -> None:
    """Check that a member with these marks leaves last, not before `end`, and that Events say why."""
    kept = max(await space.made(3))

    async def names() -> list[str]:
        return [*await space.members()]

    await annotate(space, kept, marks)
    await space.scale(1)
    await space.until_equal(f"only {kept}", names, [kept], within_s=STOPPED_S)
    await space.scale(0)
    await space.until_told(reason)
    await space.stays(f"only {kept}", names, lambda seen: seen == [kept])
    await annotate(space, kept, end)
    await space.until_members(0)


@cases.add("R6", "P8", origin=Origin.VMHERD)
async def protect_mark(space: CaseNamespace) -> None:
    """Scale-in never deletes a {member} with vmherd.dev/protect."""
    marks = {"vmherd.dev/protect": "true", "vmherd.dev/remove": "true"}
    await check_stays(space, marks, {"vmherd.dev/protect": "false"}, "ProtectedFromDeletion")


@cases.add("R6", "P24", origin=Origin.VMHERD)
async def busy(space: CaseNamespace) -> None:
    """Scale-in deletes a {member} with vmherd.dev/busy-until last, and not before this time."""
    marks = {"vmherd.dev/busy-until": "2999-01-01T00:00:00Z", "vmherd.dev/deletion-cost": "-9"}
    await check_stays(space, marks, {"vmherd.dev/busy-until": "2020-01-01T00:00:00Z"}, "ScaleInHeld")


@cases.add("R6", "P25", origin=Origin.VMHERD)
async def scale_in_finished(space: CaseNamespace) -> None:
    """With vmherd.dev/scale-in "finished", no {member} leaves before it has finished."""
    await space.made(2, annotations={"vmherd.dev/scale-in": "finished"})
    await space.scale(0)
    await space.until_told("ScaleInHeld")
    await space.stays(f"both {space.member}s", space.members, lambda seen: len(seen) == 2)
    await space.change({"metadata": {"annotations": {"vmherd.dev/scale-in": None}}})
    await space.until_members(0)


@cases.add("R6", "P26", origin=Origin.VMHERD)
async def drain(space: CaseNamespace) -> None:
    """With vmherd.dev/drain-seconds, a {member} leaves after its answer vmherd.dev/drained, and not before."""
    drains = {"vmherd.dev/drain-seconds": "900"}
    await space.made(2, template=space.template(running=True), annotations=drains)
    await space.until_ready(2)
    await space.scale(1)
    await space.until_told("Draining")
    await space.stays(f"both {space.member}s", space.members, lambda seen: len(seen) == 2)
    notes = {name: each["metadata"].get("annotations") or {} for name, each in (await space.members()).items()}
    [leaving] = [name for name, each in notes.items() if "vmherd.dev/draining" in each]
    await annotate(space, leaving, {"vmherd.dev/drained": "true"})
    after = await space.until_members(1)
    require(f"that {leaving} leaves", leaving not in after, after)


@cases.add("R14", "P29", origin=Origin.VMHERD)
async def rollback(space: CaseNamespace) -> None:
    """With vmherd.dev/rollback, the {member}s of a stalled update return to the template before."""
    annotations = {"vmherd.dev/rollback": "stalled", "vmherd.dev/progress-deadline-seconds": "5"}
    failing: Document = {"metadata": {"labels": {"release": "two"}, "annotations": FAILING}}
    if space.member == "VMI":
        await space.make(2, annotations={**annotations, "vmherd.dev/rolling-update": "maxUnavailable=1"})
    else:
        await space.make(2, annotations=annotations, template=space.template(running=True), maxUnavailable=1)
        failing = {"spec": {"template": failing}}
    await space.until_ready(2)
    await space.change({"spec": {space.template_field: failing}})
    await space.until_told("RolledBack", within_s=BOOT_S)
    await space.until(
        "2 ready VMIs with the template before",
        space.vmis,
        lambda seen: [labels_of(vmi).get("release") for vmi in seen.values() if is_ready(vmi)] == [None, None],
        within_s=2 * BOOT_S,
    )
