"""Cases about the status, conditions, Events, rejections and columns, which are the same for replica sets and pools."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from conformance.api import require
from conformance.case import Cases, Kind
from conformance.namespace import QUIET_S, CaseNamespace

cases: Cases[CaseNamespace] = Cases(Kind.SETS, Kind.POOLS)
COLUMNS = ("Name", "Desired", "Current", "Ready", "Age")


class Words(Struct, frozen=True):
    """The words that differ between the kinds: three reasons, the short names, and the field that a refusal names."""

    paused: str
    resumed: str
    failed: str
    short_names: frozenset[str]
    refused: str


WORDS: Final[Mapping[str, Words]] = {
    "VMI": Words("Paused", "SuccessfulResumed", "FailedCreate", frozenset({"vmirs", "hvmirs"}), "spec.template.spec"),
    "VM": Words(
        "SuccessfulPaused", "SuccessfulResume", "FailedScaleOut", frozenset({"vmpool", "hvmpool"}), "spec.virtual"
    ),
}


@cases.add("R8", "P17")
async def pause(space: CaseNamespace) -> None:
    """A paused {kind} does not scale, and has the condition ReplicaPaused."""
    before = await space.made(1)
    await space.change({"spec": {"paused": True}})
    found, reason = await space.until_condition("ReplicaPaused"), WORDS[space.member].paused
    require(f"reason {reason}", found.get("reason") == reason, found)
    await space.scale(3)
    await space.stays("no scaling", space.members, lambda seen: seen.keys() == before.keys())


@cases.add("R8", "P17")
async def resume(space: CaseNamespace) -> None:
    """A resumed {kind} scales, and the condition ReplicaPaused is removed."""
    await space.make(2, paused=True)
    await space.until_condition("ReplicaPaused")
    await space.resume()
    await space.until_equal("no condition ReplicaPaused", lambda: space.condition("ReplicaPaused"), None)
    await space.until_members(2)


@cases.add("R8 R12", "P17 P18")
async def pause_events(space: CaseNamespace) -> None:
    """Events report the pause and its end."""
    await space.make(0, paused=True)
    await space.until_told("SuccessfulPaused")
    await space.until_condition("ReplicaPaused")
    await space.resume()
    await space.until_told(WORDS[space.member].resumed)


async def forbidden(space: CaseNamespace) -> None:
    """Make a set or pool of 2 members in a namespace with a quota of 0."""
    await space.made(0)
    await space.forbid()
    await space.scale(2)


@cases.add("R10", "P17 P18")
async def failure(space: CaseNamespace) -> None:
    """If {member}s cannot be created, the condition ReplicaFailure and Events tell the reason."""
    await forbidden(space)
    found, reason = await space.until_condition("ReplicaFailure"), WORDS[space.member].failed
    require(f"reason {reason}", found.get("reason") == reason, found)
    require("a message about the quota", "quota" in found.get("message", ""), found)
    await space.until_told("FailedCreate", reason)


@cases.add("R10", "P17")
async def recovery(space: CaseNamespace) -> None:
    """When the obstacle is gone, the {member}s are created and ReplicaFailure is removed."""
    await forbidden(space)
    await space.until_condition("ReplicaFailure")
    await space.allow()
    await space.until(f"2 {space.member}s", space.members, lambda seen: len(seen) == 2, within_s=120)
    await space.until_equal("no condition ReplicaFailure", lambda: space.condition("ReplicaFailure"), None)


@cases.add("R11", "P17")
async def label_selector(space: CaseNamespace) -> None:
    """status.labelSelector is the selector of the spec."""
    await space.made(1)
    selector = f"app={space.name}"
    await space.until(
        f"status.labelSelector {selector}", space.status, lambda seen: seen.get("labelSelector") == selector
    )


@cases.add("R11", "P7")
async def columns(space: CaseNamespace) -> None:
    """kubectl get shows the columns Desired, Current, Ready and Age."""
    await space.make(2, template=space.template(running=True))
    await space.until_ready(2)
    table = await space.api.table(space.path())
    names = [column["name"] for column in table["columnDefinitions"]]
    shown = [column["name"] for column in table["columnDefinitions"] if column.get("priority", 0) == 0]
    require(f"the columns {', '.join(COLUMNS)}", set(COLUMNS) <= {*shown}, shown)
    row = dict(zip(names, table["rows"][0]["cells"], strict=False))
    cells, seen = [space.name, 2, 2, 2], [row[column] for column in COLUMNS[:-1]]
    require(f"the cells {cells}", seen == cells, seen)


@cases.add("R11", "P7")
async def short_name(space: CaseNamespace) -> None:
    """kubectl knows a short name of the kind."""
    wanted, known = WORDS[space.member].short_names, space.subject.short_names
    require(f"the short name {' or '.join(sorted(wanted))}", wanted & {*known}, known)


@cases.add("R1", "P1")
async def selector_mismatch(space: CaseNamespace) -> None:
    """A selector that does not match the template is refused or changes nothing."""
    document = space.document(2, selector={"matchLabels": {"app": "other"}})
    if not await space.refused("a selector that does not match", document):
        await space.stays(f"no {space.member}", space.all_members, lambda seen: not seen)


@cases.add("R1", "P1")
async def unknown_disk(space: CaseNamespace) -> None:
    """A disk without a volume is refused with the name of the field."""
    template = space.template()
    space.vmi_spec_in(template)["domain"]["devices"]["disks"].append({"name": "testdisk", "disk": {"bus": "virtio"}})
    document = space.document(0, template=template)
    refused = await space.refused("a disk without a volume", document, WORDS[space.member].refused)
    require("a refusal of a disk without a volume", refused, f"{space.name} was created")


@cases.add("R11", "P17")
async def silence(space: CaseNamespace) -> None:
    """At rest, the status of a {kind} is not written."""
    # Wait until the object is unchanged between two reads. Then check that it stays unchanged.
    await space.make(2, template=space.template(running=True))
    await space.until_ready(2)
    version = [""]

    async def look() -> str:
        return str((await space.read())["metadata"]["resourceVersion"])

    async def settled() -> bool:
        before, version[0] = version[0], await look()
        return before == version[0]

    await space.until("no write between two reads", settled, bool)
    await space.stays("no write", look, lambda seen: seen == version[0], for_s=QUIET_S)
