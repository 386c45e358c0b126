"""`kubectl vmherd detach` and `adopt`: takes a VM out of its pool or set, and gives a VM or VMI to one."""

from contextlib import suppress

import click

from controller.kinds import POOLS, REPLICA_SETS
from controller.kubevirt.annotations import CLAIMED_BY
from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.vm_types import RESTART_REQUIRED
from controller.pool.members.situation import Situation
from informers.meta import annotations_of, is_controlled_by
from plugin.command import on_members, on_objects
from plugin.connection import Failed, Session
from plugin.members import MemberName, parse_members, read_member, subject_of
from plugin.printing import note
from plugin.reading import Reader, Target
from plugin.subjects import parse_subjects
from plugin.views.edits import Edit, items
from plugin.views.membership import REVISION, Item, adopt_edits, adopt_vm_edits, after_detach, detach_edits, owner_of
from plugin.views.steering import Refused
from plugin.writing import changed, write


@on_members("detach")
async def detach(session: Session, item: Item) -> None:
    """Take VMs out of their pool or set. They keep running, and others are created in their place. A VMI of a set also
    loses the labels of the selector, so Services of the set leave it out.
    """
    kind, reference = owner_of(item)
    owner = (await Reader(session, session.namespace).target(subject_of(item))).owner if kind is REPLICA_SETS else None
    await write(session, item, detach_edits(item, owner), "detached")
    if not session.flags.output:
        note(after_detach(kind, reference.name))


@on_objects("adopt", metavar="VM...", parse=parse_members)
async def adopt(session: Session, members: tuple[MemberName, ...], to: str) -> None:
    """Give VMIs to a replica set, or VMs to a pool. VMIs get the labels of the set, and its controller adopts them. VMs
    with names of the pool become its members, for example after a backup was restored.
    """
    subjects = parse_subjects([to])
    if len(subjects) != 1 or not subjects[0].name:
        raise click.UsageError("--to names one set or pool, such as vmirs/web")
    reader = Reader(session, session.namespace)
    target = await reader.target(subjects[0])
    situation = await reader.pool(target, "the pool cannot be read: ") if target.kind is POOLS else None
    done, number = f"adopted by {target.kind.short_names[0]}/{target.key.name}", 0
    for member in dict.fromkeys(members):
        with session.going_on():
            item = await read_member(session, member)
            if item.resource is not (VMIS if situation is None else VMS):
                names = "VMIs only: name them as vmi/NAME" if situation is None else "VMs only: name them as vm/NAME"
                raise Refused(f"a {target.kind.noun} adopts {names}")
            if situation is None:
                await write(session, item, adopt_edits(item, target.owner), done)
            else:
                await write(session, item, await _prepare_vm(session, situation, item), done)
            number += 1
    note_about_surplus(session, target, number)


async def _prepare_vm(session: Session, situation: Situation, vm: Item) -> tuple[Edit, ...]:
    """Return the change that makes a VM a member of a pool. The VMI of a VM with the pool's template gets the label of
    the revision first, so the pool does not restart it.
    """
    edits, revision = adopt_vm_edits(vm, situation)
    by = annotations_of(vm.meta).get(CLAIMED_BY)
    if by is not None and not session.flags.output:
        note(f"Note: vm/{vm.key.name} stays claimed by {by}: release it, or give it to the pool with release --keep.")
    if revision:
        await _label_vmi(session, vm, revision)
    elif not session.flags.output:
        note(f"Note: vm/{vm.key.name} differs from the template of the pool: an update changes it in its turn.")
    return edits


async def _label_vmi(session: Session, vm: Item, revision: str) -> None:
    """Write that the VMI runs this revision, unless KubeVirt says that the VMI is older than its VM."""
    if any(each.get("type") == RESTART_REQUIRED for each in items(vm.document, ("status", "conditions"))):
        return
    with suppress(Failed):
        vmi = await read_member(session, MemberName(vm.key.name, VMIS))
        if is_controlled_by(vmi.meta, vm.meta.uid):
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
