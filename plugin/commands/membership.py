"""`kubectl vmherd detach` and `adopt`: takes a VM out of its pool or set, and gives a VM or VMI to one."""

from contextlib import suppress

import click

from controller.apimachinery.field_error import FieldError
from controller.kinds import POOLS, REPLICA_SETS
from controller.kubevirt.resources import VMIS
from controller.kubevirt.vm_types import RESTART_REQUIRED
from controller.pool.members.situation import Situation, situation_of
from plugin.command import on_objects
from plugin.connection import Failed, Session
from plugin.members import METAVAR, Item, MemberName, parse_members, read_member
from plugin.printing import note
from plugin.reading import Reader, Target
from plugin.subjects import Subject, parse_subjects
from plugin.views.edits import ABSENT, Edit, field
from plugin.views.membership import (
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
    "Give VMIs to a replica set, or VMs to a pool. VMIs get the labels of the set, and its controller adopts them. VMs "
    "with names of the pool become its members, for example after a backup was restored.",
    metavar="VM...",
    parse=parse_members,
)
async def adopt(session: Session, members: tuple[MemberName, ...], to: str) -> None:
    subjects = parse_subjects([to])
    if len(subjects) != 1 or not subjects[0].name:
        raise click.UsageError("--to names one set or pool, such as vmirs/web")
    reader = Reader(session, session.namespace)
    [target] = await reader.targets(subjects)
    items = [await read_member(session, member) for member in dict.fromkeys(members)]
    is_pool = target.kind is POOLS
    if any(item.document.get("kind") != ("VirtualMachine" if is_pool else "VirtualMachineInstance") for item in items):
        names = "VMs only: name them as vm/NAME" if is_pool else "VMIs only: name them as vmi/NAME"
        raise Refused(f"a {'pool' if is_pool else 'set'} adopts {names}")
    done = f"adopted by {target.kind.short_names[0]}/{target.key.name}"
    if is_pool:
        await _adopt_vms(session, await _situation(reader, target), items, done)
    else:
        changes = [(item, adopt_edits(item.document, target.owner)) for item in items]
        for item, edits in changes:
            await write(session, item, edits, done)
    _note_about_surplus(session, target, len(items))


async def _situation(reader: Reader, target: Target) -> Situation:
    snapshot = await reader.snapshot(target)
    if snapshot is None:
        raise reader.refusal("the pool cannot be read: ")
    found = situation_of(snapshot)
    if isinstance(found, FieldError):
        raise Refused(f"{target} is invalid: {found.message}")
    return found


async def _adopt_vms(session: Session, situation: Situation, items: list[Item], done: str) -> None:
    """Make VMs members of a pool. The VMI of a VM with the pool's template gets the label of the revision first, so the
    pool does not restart it.
    """
    changes = [(item, *adopt_vm_edits(item.document, situation)) for item in items]
    for item, edits, revision in changes:
        if revision:
            await _label_vmi(session, item, revision)
        elif not session.flags.output:
            note(f"Note: vm/{item.key.name} differs from the template of the pool: an update changes it in its turn.")
        await write(session, item, edits, done)


async def _label_vmi(session: Session, vm: Item, revision: str) -> None:
    """Write that the VMI runs this revision, unless KubeVirt says that the VMI is older than its VM."""
    conditions = field(vm.document, ("status", "conditions"))
    if any(each.get("type") == RESTART_REQUIRED for each in (() if conditions is ABSENT else conditions)):
        return
    with suppress(Failed):
        vmi = await read_member(session, MemberName(vm.key.name, VMIS))
        if (controller(vmi.document) or {}).get("uid") == vm.document["metadata"]["uid"]:
            await changed(session, vmi, (Edit(REVISION, revision),))


def _note_about_surplus(session: Session, target: Target, number: int) -> None:
    wanted, status = target.wanted, target.owner.status
    has = (status.replicas if status is not None else None) or 0
    if has + number > wanted and not session.flags.output:
        noun, members = ("pool", "VMs") if target.kind is POOLS else ("set", "VMIs")
        note(
            f"Note: the {noun} wants {wanted} {members} and has {has}, so surplus {members} leave. "
            "Protect those that must stay."
        )
