"""Cases about the status, conditions, Events, rejections and columns of replica sets."""

from conformance.api import owners_of
from conformance.case import Cases, Document, Kind, Origin
from conformance.expectations import require
from conformance.namespace import STOPPED_S
from conformance.replica_sets import LABELS, ReplicaSets

cases: Cases[ReplicaSets] = Cases(Kind.SETS)
COLUMNS = ("Name", "Desired", "Current", "Ready", "Age")


@cases.add("R8")
async def pause_deletes_nothing(sets: ReplicaSets) -> None:
    """A paused set deletes no VMI."""
    before = await sets.made(3)
    await sets.pause()
    await sets.scale(0)
    await sets.stays("no scaling", sets.members, lambda seen: seen.keys() == before.keys())


@cases.add("R8 R11")
async def paused_counts(sets: ReplicaSets) -> None:
    """The counts in the status of a paused set stay current."""
    gone = min(await sets.made(2))
    await sets.pause()
    await sets.api.delete(f"{sets.vmi_path}/{gone}")
    await sets.until("status.replicas 1", sets.counts, lambda seen: seen[0] == 1)
    await sets.stays("no new VMI", sets.members, lambda seen: len(seen) == 1 and gone not in seen)


@cases.add("R2 R8")
async def paused_claims(sets: ReplicaSets) -> None:
    """A paused set still adopts and releases VMIs."""
    leaving = min(await sets.made(1))
    await sets.pause()
    await sets.make_vmi("orphan", LABELS)
    found = await sets.until_members(2)
    require("that the orphan is adopted and no VMI is deleted", found.keys() == {leaving, "orphan"}, found)
    await sets.api.merge(f"{sets.vmi_path}/{leaving}", {"metadata": {"labels": {"app": "other"}}})
    await sets.until("only the orphan", sets.members, lambda seen: [*seen] == ["orphan"], within_s=STOPPED_S)
    await sets.until_members(1)
    found = await sets.vmis()
    require(f"that {leaving} stays without an owner", leaving in found and not owners_of(found[leaving]), found)


@cases.add("R12")
async def events(sets: ReplicaSets) -> None:
    """Events report created and deleted VMIs."""
    await sets.made(2)
    await sets.until_told("SuccessfulCreate")
    await sets.scale(1)
    await sets.until_told("SuccessfulCreate", "SuccessfulDelete")


@cases.add("R1", origin=Origin.VMHERD)
async def empty_selector(sets: ReplicaSets) -> None:
    """A set with an empty selector adopts no VMI."""
    await sets.make_vmi("bystander", {"app": "bystander"})
    if not await sets.refused("an empty selector", sets.document(0, selector={})):
        await sets.stays("the bystander", sets.vmis, lambda seen: [*seen] == ["bystander"] and no_owner(seen))


@cases.add("R1")
async def missing_domain(sets: ReplicaSets) -> None:
    """A template without spec.domain is refused."""
    template = sets.template()
    template["spec"]["not-a-domain"] = template["spec"].pop("domain")
    refused = await sets.refused("a template without a domain", sets.document(0, template=template), "domain")
    require("a refusal of a template without a domain", refused, "the set was created")


def no_owner(vmis: dict[str, Document]) -> bool:
    return not any(vmi["metadata"].get("ownerReferences") for vmi in vmis.values())
