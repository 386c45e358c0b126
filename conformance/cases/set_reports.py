"""Cases about the status, conditions, Events, rejections and columns of replica sets."""

from __future__ import annotations

from conformance.api import owners_of
from conformance.case import Cases, Document, Kind, Origin
from conformance.namespace import QUIET_S, STOPPED_S, CaseNamespace, require
from conformance.replica_sets import LABELS, NAME, ReplicaSets

cases: Cases[ReplicaSets] = Cases(Kind.SETS)
COLUMNS = ("Name", "Desired", "Current", "Ready", "Age")


@cases.add("set-pause", "A paused set does not scale, and has the condition ReplicaPaused", rules="R8")
async def pause(sets: ReplicaSets) -> None:
    before = await sets.made(1)
    await sets.change({"spec": {"paused": True}}, NAME)
    found = await until_condition(sets, "ReplicaPaused", NAME)
    require("reason Paused", found.get("reason") == "Paused", found)
    await sets.scale(3, NAME)
    await sets.stays("no scaling", sets.members, lambda seen: seen.keys() == before.keys())


@cases.add("set-pause-deletes-nothing", "A paused set deletes no VMI", rules="R8")
async def pause_deletes_nothing(sets: ReplicaSets) -> None:
    before = await sets.made(3)
    await sets.change({"spec": {"paused": True}}, NAME)
    await until_condition(sets, "ReplicaPaused", NAME)
    await sets.scale(0, NAME)
    await sets.stays("no scaling", sets.members, lambda seen: seen.keys() == before.keys())


@cases.add("set-resume", "A resumed set scales, and the condition ReplicaPaused is removed", rules="R8")
async def resume(sets: ReplicaSets) -> None:
    await sets.make(2, paused=True)
    await until_condition(sets, "ReplicaPaused", NAME)
    await sets.change({"spec": {"paused": False}}, NAME)
    await sets.until_equal("no condition ReplicaPaused", lambda: sets.condition("ReplicaPaused", NAME), None)
    await sets.until_members(2)


@cases.add("set-pause-events", "Events report the pause and its end", rules="R8 R12")
async def pause_events(sets: ReplicaSets) -> None:
    await sets.make(0, paused=True)
    await sets.until_told(NAME, "SuccessfulPaused")
    await until_condition(sets, "ReplicaPaused", NAME)
    await sets.change({"spec": {"paused": False}}, NAME)
    await sets.until_told(NAME, "SuccessfulResumed")


@cases.add("set-paused-counts", "The counts in the status of a paused set stay current", rules="R8 R11")
async def paused_counts(sets: ReplicaSets) -> None:
    gone = min(await sets.made(2))
    await sets.change({"spec": {"paused": True}}, NAME)
    await until_condition(sets, "ReplicaPaused", NAME)
    await sets.api.delete(f"{sets.vmi_path}/{gone}")
    await sets.until("status.replicas 1", lambda: sets.counts(NAME), lambda seen: seen[0] == 1)
    await sets.stays("no new VMI", sets.members, lambda seen: len(seen) == 1 and gone not in seen)


@cases.add("set-paused-claims", "A paused set still adopts and releases VMIs", rules="R2 R8")
async def paused_claims(sets: ReplicaSets) -> None:
    leaving = min(await sets.made(1))
    await sets.change({"spec": {"paused": True}}, NAME)
    await until_condition(sets, "ReplicaPaused", NAME)
    await sets.make_vmi("orphan", LABELS)
    found = await sets.until_members(2)
    require("that the orphan is adopted and no VMI is deleted", found.keys() == {leaving, "orphan"}, found)
    await sets.api.merge(f"{sets.vmi_path}/{leaving}", {"metadata": {"labels": {"app": "other"}}})
    await sets.until("only the orphan", sets.members, lambda seen: [*seen] == ["orphan"], within_s=STOPPED_S)
    await sets.until_members(1)
    found = await sets.vmis()
    require(f"that {leaving} stays without an owner", leaving in found and not owners_of(found[leaving]), found)


@cases.add("set-events", "Events report created and deleted VMIs", rules="R12")
async def events(sets: ReplicaSets) -> None:
    await sets.made(2)
    await sets.until_told(NAME, "SuccessfulCreate")
    await sets.scale(1, NAME)
    await sets.until_told(NAME, "SuccessfulCreate", "SuccessfulDelete")


@cases.add("set-failure", "If VMIs cannot be created, the condition ReplicaFailure tells the reason", rules="R10")
async def failure(sets: ReplicaSets) -> None:
    await sets.made(0)
    probe = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "probe"}}
    await sets.forbid("virtualmachineinstances", {**probe, "spec": sets.template()["spec"]}, sets.vmi_path)
    await sets.scale(2, NAME)
    found = await until_condition(sets, "ReplicaFailure", NAME)
    require("reason FailedCreate", found.get("reason") == "FailedCreate", found)
    require("a message about the quota", "quota" in found.get("message", ""), found)
    await sets.until_told(NAME, "FailedCreate")


@cases.add("set-recovery", "When the obstacle is gone, the VMIs are created and ReplicaFailure is removed", rules="R10")
async def recovery(sets: ReplicaSets) -> None:
    await sets.made(0)
    probe = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "probe"}}
    await sets.forbid("virtualmachineinstances", {**probe, "spec": sets.template()["spec"]}, sets.vmi_path)
    await sets.scale(2, NAME)
    await until_condition(sets, "ReplicaFailure", NAME)
    await sets.allow()
    await sets.until("2 VMIs", sets.members, lambda seen: len(seen) == 2, within_s=120)
    await sets.until_equal("no condition ReplicaFailure", lambda: sets.condition("ReplicaFailure", NAME), None)


@cases.add("set-label-selector", "status.labelSelector is the selector of the spec", rules="R11")
async def label_selector(sets: ReplicaSets) -> None:
    await sets.made(1)
    await sets.until(
        "status.labelSelector app=herd", lambda: sets.status(NAME), lambda seen: seen.get("labelSelector") == "app=herd"
    )


@cases.add("set-columns", "kubectl get shows the columns Desired, Current, Ready and Age", rules="R11")
async def columns(sets: ReplicaSets) -> None:
    await sets.make(2)
    await sets.until_ready(2)
    await check_columns(sets, NAME, [NAME, 2, 2, 2])


@cases.add("set-short-name", "kubectl knows a short name of the kind", rules="R11")
async def short_name(sets: ReplicaSets) -> None:
    require(
        "the short name vmirs or hvmirs", {"vmirs", "hvmirs"} & {*sets.subject.short_names}, sets.subject.short_names
    )


@cases.add(
    "set-selector-mismatch", "A selector that does not match the template is refused or changes nothing", rules="R1"
)
async def selector_mismatch(sets: ReplicaSets) -> None:
    document = sets.document(2, selector={"matchLabels": {"app": "other"}})
    if not await sets.refused("a selector that does not match", document):
        await sets.stays("no VMI", sets.vmis, lambda seen: not seen)


@cases.add("set-empty-selector", "A set with an empty selector adopts no VMI", rules="R1", origin=Origin.VMHERD)
async def empty_selector(sets: ReplicaSets) -> None:
    await sets.make_vmi("bystander", {"app": "bystander"})
    if not await sets.refused("an empty selector", sets.document(0, selector={})):
        await sets.stays("the bystander", sets.vmis, lambda seen: [*seen] == ["bystander"] and no_owner(seen))


@cases.add("set-unknown-disk", "A disk without a volume is refused with the name of the field", rules="R1")
async def unknown_disk(sets: ReplicaSets) -> None:
    template = sets.template()
    template["spec"]["domain"]["devices"]["disks"].append({"name": "testdisk", "disk": {"bus": "virtio"}})
    refused = await sets.refused("a disk without a volume", sets.document(0, template=template), "spec.template.spec")
    require("a refusal of a disk without a volume", refused, "the set was created")


@cases.add("set-missing-domain", "A template without spec.domain is refused", rules="R1")
async def missing_domain(sets: ReplicaSets) -> None:
    template = sets.template()
    template["spec"]["not-a-domain"] = template["spec"].pop("domain")
    refused = await sets.refused("a template without a domain", sets.document(0, template=template), "domain")
    require("a refusal of a template without a domain", refused, "the set was created")


@cases.add("set-silence", "At rest, the status of a set is not written", rules="R11")
async def silence(sets: ReplicaSets) -> None:
    await sets.make(2)
    await sets.until_ready(2)
    await quiet(sets, NAME)


async def until_condition(space: CaseNamespace, type_: str, name: str) -> Document:
    """Wait until a condition has the status True, and return the condition."""
    found = await space.until(
        f"the condition {type_}=True",
        lambda: space.condition(type_, name),
        lambda seen: seen and seen["status"] == "True",
    )
    return found or {}


async def check_columns(space: CaseNamespace, name: str, cells: list[object]) -> None:
    """Check the columns and the cells that `kubectl get` prints for an object."""
    table = await space.api.table(space.path(name))
    shown = [column["name"] for column in table["columnDefinitions"] if column.get("priority", 0) == 0]
    require(f"the columns {', '.join(COLUMNS)}", set(COLUMNS) <= {*shown}, shown)
    row = dict(zip([column["name"] for column in table["columnDefinitions"]], table["rows"][0]["cells"], strict=False))
    seen = [row[column] for column in COLUMNS[:-1]]
    require(f"the cells {cells}", seen == cells, seen)


async def quiet(space: CaseNamespace, name: str) -> None:
    """Wait until an object is unchanged between two reads. Then check that the object stays unchanged."""
    version = [""]

    async def look() -> str:
        return str((await space.read(name))["metadata"]["resourceVersion"])

    async def settled() -> bool:
        before, version[0] = version[0], await look()
        return before == version[0]

    await space.until("no write between two reads", settled, bool)
    await space.stays("no write", look, lambda seen: seen == version[0], for_s=QUIET_S)


def no_owner(vmis: dict[str, Document]) -> bool:
    return not any(vmi["metadata"].get("ownerReferences") for vmi in vmis.values())
