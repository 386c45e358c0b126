"""`kubectl vmherd detach` and `adopt`: takes a VM out of its pool or set, and gives a VM or VMI to one."""

from contextlib import suppress

import click

from controller.apimachinery.field_error import FieldError
from controller.kinds import POOLS, REPLICA_SETS
from controller.kubevirt.annotations import CLAIMED_BY
from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.vm_types import RESTART_REQUIRED
from controller.pool.members.situation import Situation, situation_of
from plugin.command import on_members, on_objects
from plugin.connection import Failed, Session
from plugin.members import Item, MemberName, parse_members, read_member
from plugin.printing import note
from plugin.reading import Reader, Target
from plugin.subjects import Subject, parse_subjects
from plugin.views.edits import ABSENT, Edit, field
from plugin.views.membership import (
    ANNOTATIONS,
    REVISION,
    adopt_edits,
    adopt_vm_edits,
    after_detach,
    controller,
    detach_edits,
    owner_kind,
)
from plugin.views.steering import Refused
from plugin.writing import changed, write


@on_members("detach")
async def detach(session: Session, item: Item) -> None:
    """Take VMs out of their pool or set. They keep running, and others are created in their place. A VMI of a set also
    loses the labels of the selector, so Services of the set leave it out.
    """
    kind = owner_kind(item.document)
    owner = (await owner_of_member(session, item)).owner if kind is REPLICA_SETS else None
    edits = detach_edits(item.document, owner)
    await write(session, item, edits, "detached")
    if not session.flags.output:
        note(after_detach(kind, (controller(item.document) or {})["name"]))


async def owner_of_member(session: Session, item: Item) -> Target:
    """Read the set or pool that controls a member. Raise Refused, Failed."""
    kind, reference = owner_kind(item.document), controller(item.document) or {}
    group = reference["apiVersion"].partition("/")[0]
    [target] = await Reader(session, session.namespace).targets([Subject(kind, group, reference["name"])])
    return target


@on_objects("adopt", metavar="VM...", parse=parse_members)
async def adopt(session: Session, members: tuple[MemberName, ...], to: str) -> None:
    """Give VMIs to a replica set, or VMs to a pool. VMIs get the labels of the set, and its controller adopts them. VMs
    with names of the pool become its members, for example after a backup was restored.
    """
    subjects = parse_subjects([to])
    if len(subjects) != 1 or not subjects[0].name:
        raise click.UsageError("--to names one set or pool, such as vmirs/web")
    reader = Reader(session, session.namespace)
    [target] = await reader.targets(subjects)
    situation = await _situation(reader, target) if target.kind is POOLS else None
    done, number = f"adopted by {target.kind.short_names[0]}/{target.key.name}", 0
    for member in dict.fromkeys(members):
        with session.going_on():
            item = await read_member(session, member)
            if item.resource is not (VMIS if situation is None else VMS):
                names = "VMIs only: name them as vmi/NAME" if situation is None else "VMs only: name them as vm/NAME"
                raise Refused(f"a {target.kind.noun} adopts {names}")
            edits = adopt_edits(item.document, target.owner) if situation is None else ()
            if situation is not None:
                edits = await _prepare_vm(session, situation, item)
            await write(session, item, edits, done)
            number += 1
    note_about_surplus(session, target, number)


async def _situation(reader: Reader, target: Target) -> Situation:
    snapshot = await reader.snapshot(target)
    if snapshot is None:
        raise reader.refusal("the pool cannot be read: ")
    found = situation_of(snapshot)
    if isinstance(found, FieldError):
        raise Refused(f"{target} is invalid: {found.message}")
    return found


async def _prepare_vm(session: Session, situation: Situation, vm: Item) -> tuple[Edit, ...]:
    """Return the change that makes a VM a member of a pool. The VMI of a VM with the pool's template gets the label of
    the revision first, so the pool does not restart it.
    """
    edits, revision = adopt_vm_edits(vm.document, situation)
    by = field(vm.document, (*ANNOTATIONS, CLAIMED_BY))
    if by is not ABSENT and not session.flags.output:
        note(f"Note: vm/{vm.key.name} stays claimed by {by}: release it, or give it to the pool with release --keep.")
    if revision:
        await _label_vmi(session, vm, revision)
    elif not session.flags.output:
        note(f"Note: vm/{vm.key.name} differs from the template of the pool: an update changes it in its turn.")
    return edits


async def _label_vmi(session: Session, vm: Item, revision: str) -> None:
    """Write that the VMI runs this revision, unless KubeVirt says that the VMI is older than its VM."""
    conditions = field(vm.document, ("status", "conditions"))
    if any(each.get("type") == RESTART_REQUIRED for each in (() if conditions is ABSENT else conditions)):
        return
    with suppress(Failed):
        vmi = await read_member(session, MemberName(vm.key.name, VMIS))
        if (controller(vmi.document) or {}).get("uid") == vm.document["metadata"]["uid"]:
            await changed(session, vmi, (Edit(REVISION, revision),))


def note_about_surplus(session: Session, target: Target, number: int) -> None:
    """Say that the set or pool has too many members with this number of new ones."""
    wanted, status = target.wanted, target.owner.status
    has = (status.replicas if status is not None else None) or 0
    if has + number > wanted and not session.flags.output:
        noun, members = ("pool", "VMs") if target.kind is POOLS else ("set", "VMIs")
        note(
            f"Note: the {noun} wants {wanted} and has {has + number} {members} now, so surplus {members} leave. "
            "Protect those that must stay."
        )
