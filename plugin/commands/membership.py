"""`kubectl vmherd detach` and `adopt`: takes a VM out of its pool or set, and gives a VMI to a set."""

from __future__ import annotations

from typing import Any

import click

from controller.kinds import POOLS, REPLICA_SETS
from plugin.connection import Failed, Session, carry_out
from plugin.flags import Verb, flags_of
from plugin.members import METAVAR, Item, MemberName, parse_members, read_member
from plugin.printing import note
from plugin.reading import Reader, Target
from plugin.subjects import Subject, parse_subjects
from plugin.verbs import FLAGS
from plugin.views.membership import adopt_edits, after_detach, controller, detach_edits, owner_kind
from plugin.views.steering import Refused
from plugin.writing import write


@click.command(
    "detach",
    cls=Verb,
    own=FLAGS["detach"],
    help="Take VMs out of their pool or set. They keep running, and others are created in their place. A VMI of a set "
    "also loses the labels of the selector, so Services of the set leave it out.",
)
@click.argument("arguments", nargs=-1, metavar=METAVAR)
def detach(arguments: tuple[str, ...], **values: Any) -> None:
    members = parse_members(arguments)

    async def work(session: Session) -> None:
        for member in members:
            await _detach(session, await read_member(session, member))

    carry_out(flags_of(values), work)


async def _detach(session: Session, item: Item) -> None:
    try:
        kind, reference = owner_kind(item.document), controller(item.document) or {}
        owner = None
        if kind is REPLICA_SETS:
            group = reference["apiVersion"].partition("/")[0]
            [target] = await Reader(session, session.namespace).targets([Subject(kind, group, reference["name"])])
            owner = target.owner
        edits = detach_edits(item.document, owner)
    except Refused as error:
        raise Failed(f"error: {error}") from error
    await write(session, item, edits, "detached")
    if not session.flags.output:
        note(after_detach(kind, reference["name"]))


@click.command(
    "adopt",
    cls=Verb,
    own=FLAGS["adopt"],
    help="Give VMIs to a replica set: they get the labels of its selector, and its controller adopts them.",
)
@click.argument("arguments", nargs=-1, metavar="VMI...")
def adopt(arguments: tuple[str, ...], to: str, **values: Any) -> None:
    members, subjects = parse_members(arguments), parse_subjects([to])
    if subjects[0].kind is POOLS:
        raise click.UsageError("a pool adopts no VM, because its VMs have ordinals in their names: name a set")
    if len(subjects) != 1 or not subjects[0].name:
        raise click.UsageError("--to names one set, such as vmirs/web")
    carry_out(flags_of(values), lambda session: _adopt(session, members, subjects))


async def _adopt(session: Session, members: tuple[MemberName, ...], subjects: tuple[Subject, ...]) -> None:
    [target] = await Reader(session, session.namespace).targets(subjects)
    items = [await read_member(session, member) for member in members]
    if any(item.document.get("kind") != "VirtualMachineInstance" for item in items):
        raise Failed("error: a set adopts VMIs only: name them as vmi/NAME")
    try:
        changes = [(item, adopt_edits(item.document, target.owner)) for item in items]
    except Refused as error:
        raise Failed(f"error: {error}") from error
    for item, edits in changes:
        await write(session, item, edits, f"adopted by {target.kind.short_names[0]}/{target.key.name}")
    _note_about_surplus(session, target, len(items))


def _note_about_surplus(session: Session, target: Target, number: int) -> None:
    wanted = 1 if target.owner.spec.replicas is None else target.owner.spec.replicas
    status = target.owner.status
    has = (status.replicas if status is not None else None) or 0
    if has + number > wanted and not session.flags.output:
        note(f"Note: the set wants {wanted} VMIs and has {has}, so surplus VMIs leave. Protect those that must stay.")
