"""Cases about the membership and the content of a replica set's VMIs."""

from __future__ import annotations

import asyncio
import re

from conformance.api import controller_of, labels_of, owners_of, uids_of
from conformance.case import Cases, Kind, Skip
from conformance.namespace import BOOT_S, STOPPED_S, require
from conformance.replica_sets import LABELS, NAME, ReplicaSets
from conformance.templates import vmi_template

cases: Cases[ReplicaSets] = Cases(Kind.SETS)
SUFFIX = "[a-z0-9]{5}"
SEEN_S = 1.0
"""The time in which a controller sees a new object, in seconds. It decides from its cache, which may be behind."""


@cases.add("set-names", "The name of a VMI is the name of the set and five characters", rules="R5")
async def names(sets: ReplicaSets) -> None:
    found = await sets.made(3)
    require(f"names {NAME}<5 characters>", all(re.fullmatch(NAME + SUFFIX, name) for name in found), [*found])


@cases.add("set-template-name", "A name in the template is the base of the VMIs' names", rules="R5")
async def template_name(sets: ReplicaSets) -> None:
    template = sets.template()
    template["metadata"]["name"] = "test"
    found = await sets.made(2, template=template)
    require("names test<5 characters>", all(re.fullmatch("test" + SUFFIX, name) for name in found), [*found])


@cases.add("set-owner-reference", "The set is the controller of each VMI", rules="R2 R5")
async def owner_reference(sets: ReplicaSets) -> None:
    found = await sets.made(1)
    uid = (await sets.read(NAME))["metadata"]["uid"]
    [owner] = [controller_of(vmi) for vmi in found.values()]
    wanted = (sets.subject.kind, NAME, uid)
    seen = owner and (owner["kind"], owner["name"], owner["uid"])
    require(f"the controller {sets.subject.kind} {NAME}", seen == wanted, owner)
    require(
        f"a controller in {sets.subject.group}",
        owner and owner["apiVersion"].startswith(f"{sets.subject.group}/"),
        owner,
    )


@cases.add("set-template-metadata", "A VMI has the labels and annotations of the template", rules="R5")
async def template_metadata(sets: ReplicaSets) -> None:
    template = sets.template({"tier": "front"}, {"example.org/note": "hello"})
    [vmi] = (await sets.made(1, template=template)).values()
    require("the labels app and tier", labels_of(vmi).items() >= {**LABELS, "tier": "front"}.items(), labels_of(vmi))
    annotations = vmi["metadata"].get("annotations") or {}
    require("the annotation example.org/note", annotations.get("example.org/note") == "hello", annotations)


@cases.add("set-adopt-orphan", "A set adopts a VMI that matches its selector and has no controller", rules="R2")
async def adopt_orphan(sets: ReplicaSets) -> None:
    orphan = await sets.make_vmi("orphan", LABELS)
    await asyncio.sleep(SEEN_S)
    await sets.make(2)
    found = await sets.until_members(2)
    require("that the orphan is one of the 2 VMIs", orphan["metadata"]["uid"] in uids_of(found), found)
    require("no other VMI", (await sets.vmis()).keys() == found.keys(), await sets.vmis())


@cases.add("set-release", "A VMI whose labels no longer match is released and replaced", rules="R2")
async def release(sets: ReplicaSets) -> None:
    before = await sets.made(2)
    leaving = min(before)
    await sets.api.merge(f"{sets.vmi_path}/{leaving}", {"metadata": {"labels": {"app": "other"}}})
    await sets.until(
        "a replacement", sets.members, lambda seen: len(seen) == 2 and leaving not in seen, within_s=STOPPED_S
    )
    after = (await sets.vmis()).get(leaving)
    require(f"that {leaving} stays without an owner", after and not owners_of(after), after and owners_of(after))
    kept = labels_of(after or {})
    labels = {**labels_of(before[leaving]), "app": "other"}
    require("that its other labels stay", labels.items() <= kept.items(), kept)


@cases.add("set-readopt", "A released VMI is adopted again if its labels match again", rules="R2")
async def readopt(sets: ReplicaSets) -> None:
    leaving = min(await sets.made(1))
    await sets.api.merge(f"{sets.vmi_path}/{leaving}", {"metadata": {"labels": {"app": "other"}}})
    await sets.until(
        "a replacement", sets.members, lambda seen: len(seen) == 1 and leaving not in seen, within_s=STOPPED_S
    )
    await sets.scale(2, NAME)
    await sets.until_members(2)
    await sets.api.merge(f"{sets.vmi_path}/{leaving}", {"metadata": {"labels": LABELS}})
    await sets.until("2 of the 3 VMIs", sets.vmis, lambda seen: len(seen) == 2, within_s=BOOT_S)
    await sets.until_members(2)


@cases.add("set-foreign-controller", "A VMI with another controller is never changed", rules="R2")
async def foreign_controller(sets: ReplicaSets) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}
    owner = await sets.api.create(f"{sets.core}/configmaps", body)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    await sets.make_vmi("foreign", LABELS, [{**reference, "controller": True}])
    found = await sets.made(2)
    require("2 VMIs beside the foreign one", "foreign" not in found, found)
    await sets.scale(0, NAME)
    await sets.until_members(0)
    after = (await sets.vmis()).get("foreign")
    owners = owners_of(after) if after else []
    require("that the foreign VMI keeps its controller", [each["name"] for each in owners] == ["owner"], owners)


@cases.add("set-delete", "If a set is deleted, its VMIs are deleted", rules="R15")
async def delete(sets: ReplicaSets) -> None:
    await sets.made(2)
    await sets.api.delete(sets.path(NAME))
    await sets.until_equal("no set", lambda: sets.api.find(sets.path(NAME)), None, within_s=BOOT_S)
    await sets.until_equal("no VMI", sets.vmis, {}, within_s=BOOT_S)


@cases.add(
    "set-delete-orphan", "If a set is deleted with --cascade=orphan, its VMIs stay without an owner", rules="R15"
)
async def delete_orphan(sets: ReplicaSets) -> None:
    before = await sets.made(2)
    await sets.api.delete(sets.path(NAME), "Orphan")
    await sets.until_equal("no set", lambda: sets.api.find(sets.path(NAME)), None)
    after = await sets.vmis()
    require("the same VMIs", after.keys() == before.keys(), after)
    owners = [owner["name"] for vmi in after.values() for owner in owners_of(vmi)]
    require("VMIs without an owner", not owners, owners)


@cases.add("set-recreate", "A set that is created again adopts the VMIs that its predecessor left", rules="R2 R15")
async def recreate(sets: ReplicaSets) -> None:
    before = await sets.made(2)
    await sets.api.delete(sets.path(NAME), "Orphan")
    await sets.until_equal("no set", lambda: sets.api.find(sets.path(NAME)), None)
    after = await sets.made(2)
    require("the same VMIs", after.keys() == before.keys(), after)


@cases.add("set-selector-expressions", "A selector with matchExpressions selects VMIs", rules="R2")
async def selector_expressions(sets: ReplicaSets) -> None:
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["herd", "flock"]}]}
    await sets.make_vmi("orphan", {"app": "flock"})
    await asyncio.sleep(SEEN_S)
    await sets.make(2, selector=selector)
    found = await sets.until_members(2)
    require("that the orphan is one of the 2 VMIs", "orphan" in found, found)


@cases.add("set-two-sets", "Two sets with different selectors do not disturb each other", rules="R2")
async def two_sets(sets: ReplicaSets) -> None:
    other = {"selector": {"matchLabels": {"app": "flock"}}}
    template = vmi_template(sets.conditions.image, {"app": "flock"})
    first = await sets.made(2)
    await sets.make(1, name="flock", template=template, **other)
    await sets.until_members(1, "flock")
    await sets.scale(0, "flock")
    await sets.until_members(0, "flock")
    require("that the first set keeps its VMIs", (await sets.members()).keys() == first.keys(), await sets.members())


@cases.add("set-v1alpha3", "A set in the version v1alpha3 of the guide works", rules="R13")
async def v1alpha3(sets: ReplicaSets) -> None:
    if "v1alpha3" not in sets.subject.versions:
        raise Skip(f"{sets.subject.group} does not serve the version v1alpha3")
    path = sets.objects.replace(f"/{sets.subject.version}/", "/v1alpha3/")
    body = {**sets.document(2), "apiVersion": f"{sets.subject.group}/v1alpha3"}
    await sets.api.create(path, body)
    await sets.until_members(2)
