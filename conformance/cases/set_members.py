"""Cases about the membership and the content of a replica set's VMIs, and about pause, Events and rejections."""

import asyncio
import re

from conformance.api import labels_of, owners_of, require, uids_of
from conformance.case import Cases, Document, Kind, Origin, Skip
from conformance.namespace import BOOT_S, SEEN_S, STOPPED_S
from conformance.replica_sets import LABELS, NAME, ReplicaSets
from conformance.templates import vmi_template

cases: Cases[ReplicaSets] = Cases(Kind.SETS)
SUFFIX = "[a-z0-9]{5}"


@cases.add("R5")
async def names(sets: ReplicaSets) -> None:
    """The name of a VMI is the name of the set and five characters."""
    found = await sets.made(3)
    require(f"names {NAME}<5 characters>", all(re.fullmatch(NAME + SUFFIX, name) for name in found), [*found])


@cases.add("R5")
async def template_name(sets: ReplicaSets) -> None:
    """A name in the template is the base of the VMIs' names."""
    template = sets.template()
    template["metadata"]["name"] = "test"
    found = await sets.made(2, template=template)
    require("names test<5 characters>", all(re.fullmatch("test" + SUFFIX, name) for name in found), [*found])


@cases.add("R2")
async def adopt_orphan(sets: ReplicaSets) -> None:
    """A set adopts a VMI that matches its selector and has no controller."""
    orphan = await sets.make_vmi("orphan", LABELS)
    await asyncio.sleep(SEEN_S)
    await sets.make(2)
    found = await sets.until_members(2)
    require("that the orphan is one of the 2 VMIs", orphan["metadata"]["uid"] in uids_of(found), found)
    require("no other VMI", (await sets.vmis()).keys() == found.keys(), await sets.vmis())


async def released(sets: ReplicaSets, before: dict[str, Document]) -> str:
    """Change the labels of one of these VMIs, and wait for its replacement. Return the name of the VMI."""
    leaving = min(before)
    await sets.api.merge(f"{sets.vmi_path}/{leaving}", {"metadata": {"labels": {"app": "other"}}})
    await sets.until(
        "a replacement", sets.members, lambda seen: len(seen) == len(before) and leaving not in seen, within_s=STOPPED_S
    )
    return leaving


@cases.add("R2")
async def release(sets: ReplicaSets) -> None:
    """A VMI whose labels no longer match is released and replaced."""
    before = await sets.made(2)
    leaving = await released(sets, before)
    after = (await sets.vmis()).get(leaving)
    require(f"that {leaving} stays without an owner", after and not owners_of(after), after and owners_of(after))
    kept = labels_of(after or {})
    labels = {**labels_of(before[leaving]), "app": "other"}
    require("that its other labels stay", labels.items() <= kept.items(), kept)


@cases.add("R2")
async def readopt(sets: ReplicaSets) -> None:
    """A released VMI is adopted again if its labels match again."""
    leaving = await released(sets, await sets.made(1))
    await sets.scale(2)
    await sets.until_members(2)
    await sets.api.merge(f"{sets.vmi_path}/{leaving}", {"metadata": {"labels": LABELS}})
    await sets.until("2 of the 3 VMIs", sets.vmis, lambda seen: len(seen) == 2, within_s=BOOT_S)
    await sets.until_members(2)


@cases.add("R2")
async def foreign_controller(sets: ReplicaSets) -> None:
    """A VMI with another controller is never changed."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}
    owner = await sets.api.create(f"{sets.core}/configmaps", body)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    await sets.make_vmi("foreign", LABELS, [{**reference, "controller": True}])
    found = await sets.made(2)
    require("2 VMIs beside the foreign one", "foreign" not in found, found)
    await sets.scale(0)
    await sets.until_members(0)
    after = (await sets.vmis()).get("foreign")
    owners = owners_of(after) if after else []
    require("that the foreign VMI keeps its controller", [each["name"] for each in owners] == ["owner"], owners)


@cases.add("R2 R15")
async def recreate(sets: ReplicaSets) -> None:
    """A set that is created again adopts the VMIs that its predecessor left."""
    before = await sets.made(2)
    await sets.delete("Orphan")
    after = await sets.made(2)
    require("the same VMIs", after.keys() == before.keys(), after)


@cases.add("R2")
async def selector_expressions(sets: ReplicaSets) -> None:
    """A selector with matchExpressions selects VMIs."""
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["herd", "flock"]}]}
    await sets.make_vmi("orphan", {"app": "flock"})
    await asyncio.sleep(SEEN_S)
    await sets.make(2, selector=selector)
    found = await sets.until_members(2)
    require("that the orphan is one of the 2 VMIs", "orphan" in found, found)


@cases.add("R2")
async def two_sets(sets: ReplicaSets) -> None:
    """Two sets with different selectors do not disturb each other."""
    other = {"selector": {"matchLabels": {"app": "flock"}}}
    template = vmi_template(sets.conditions.image, {"app": "flock"})
    first = await sets.made(2)
    await sets.make(1, name="flock", template=template, **other)
    await sets.until_members(1, "flock")
    await sets.scale(0, "flock")
    await sets.until_members(0, "flock")
    require("that the first set keeps its VMIs", (await sets.members()).keys() == first.keys(), await sets.members())


@cases.add("R13")
async def v1alpha3(sets: ReplicaSets) -> None:
    """A set in the version v1alpha3 of the guide works."""
    if "v1alpha3" not in sets.subject.versions:
        raise Skip(f"{sets.subject.group} does not serve the version v1alpha3")
    path = sets.objects.replace(f"/{sets.subject.version}/", "/v1alpha3/")
    body = {**sets.document(2), "apiVersion": f"{sets.subject.group}/v1alpha3"}
    await sets.api.create(path, body)
    await sets.until_members(2)


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
        await sets.stays(
            "the bystander", sets.vmis, lambda seen: [*seen] == ["bystander"] and not owners_of(seen["bystander"])
        )


@cases.add("R1")
async def missing_domain(sets: ReplicaSets) -> None:
    """A template without spec.domain is refused."""
    template = sets.template()
    template["spec"]["not-a-domain"] = template["spec"].pop("domain")
    refused = await sets.refused("a template without a domain", sets.document(0, template=template), "domain")
    require("a refusal of a template without a domain", refused, "the set was created")
