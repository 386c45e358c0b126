"""`kubectl vmherd detach` and `adopt`: takes a VM out of its pool or set, and gives a VMI to a set."""

import click

from controller.kinds import POOLS, REPLICA_SETS
from plugin.command import on_objects
from plugin.connection import Session
from plugin.members import METAVAR, Item, MemberName, parse_members, read_member
from plugin.printing import note
from plugin.reading import Reader, Target
from plugin.subjects import Subject, parse_subjects
from plugin.views.membership import adopt_edits, after_detach, controller, detach_edits, owner_kind
from plugin.views.steering import Refused
from plugin.writing import write


@on_objects(
    "detach",
    "Take VMs out of their pool or set. They keep running, and others are created in their place. A VMI of a set "
    "also loses the labels of the selector, so Services of the set leave it out.",
    metavar=METAVAR,
    parse=parse_members,
)
async def detach(session: Session, members: tuple[MemberName, ...]) -> None:
    for member in members:
        await _detach(session, await read_member(session, member))


async def _detach(session: Session, item: Item) -> None:
    kind, reference = owner_kind(item.document), controller(item.document) or {}
    owner = None
    if kind is REPLICA_SETS:
        group = reference["apiVersion"].partition("/")[0]
        [target] = await Reader(session, session.namespace).targets([Subject(kind, group, reference["name"])])
        owner = target.owner
    edits = detach_edits(item.document, owner)
    await write(session, item, edits, "detached")
    if not session.flags.output:
        note(after_detach(kind, reference["name"]))


@on_objects(
    "adopt",
    "Give VMIs to a replica set: they get the labels of its selector, and its controller adopts them.",
    metavar="VMI...",
    parse=parse_members,
)
async def adopt(session: Session, members: tuple[MemberName, ...], to: str) -> None:
    subjects = parse_subjects([to])
    if subjects[0].kind is POOLS:
        raise click.UsageError("a pool adopts no VM, because its VMs have ordinals in their names: name a set")
    if len(subjects) != 1 or not subjects[0].name:
        raise click.UsageError("--to names one set, such as vmirs/web")
    [target] = await Reader(session, session.namespace).targets(subjects)
    items = [await read_member(session, member) for member in members]
    if any(item.document.get("kind") != "VirtualMachineInstance" for item in items):
        raise Refused("a set adopts VMIs only: name them as vmi/NAME")
    changes = [(item, adopt_edits(item.document, target.owner)) for item in items]
    for item, edits in changes:
        await write(session, item, edits, f"adopted by {target.kind.short_names[0]}/{target.key.name}")
    _note_about_surplus(session, target, len(items))


def _note_about_surplus(session: Session, target: Target, number: int) -> None:
    wanted, status = target.wanted, target.owner.status
    has = (status.replicas if status is not None else None) or 0
    if has + number > wanted and not session.flags.output:
        note(f"Note: the set wants {wanted} VMIs and has {has}, so surplus VMIs leave. Protect those that must stay.")
