"""Scaling: new VMs get the smallest free ordinals (P3, P4), and policies choose the surplus VMs to delete (P8, P9).

A terminating VM still exists. For scale-out, a terminating VM counts as a VM of the pool, and its name stays taken. So
the pool never has too many VMs. For scale-in, a terminating VM counts as already deleted. So the pool does not delete a
second VM in place of a VM that is still terminating.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from controller.kubevirt.annotations import PROTECT
from controller.kubevirt.resources import DATA_VOLUMES, PVCS, VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import is_deleting
from controller.pool.leaving.deletes import MAX_NOTICES, delete_of
from controller.pool.leaving.disks import add_finalizers, is_safe_to_delete
from controller.pool.members.machine import Machines
from controller.pool.members.revisions import Revisions, plan_revision
from controller.pool.members.select import Candidates, choose_for_removal
from controller.pool.members.snapshot import Snapshot
from controller.pool.rollout.limits import partition_of, template_below
from controller.pool.rollout.successors import body_of
from controller.pool.spec.indexing import own_disks
from controller.pool.spec.intent import Intent
from controller.pool.spec.naming import free_ordinals, name_of
from controller.pool.spec.policies import Strategy
from controller.runtime.actions import Confirm, Create, Notice, Plan, Stage
from informers.meta import ObjectKey


def plan_scale(
    snapshot: Snapshot,
    intent: Intent,
    revisions: Revisions,
    members: Machines,
    *,
    deleted_uids: Collection[str] = (),
) -> Plan:
    """Plan the creation of missing VMs or the deletion of surplus VMs.

    `deleted_uids` are the UIDs of the VMs that healing deletes in the same plan.
    """
    missing = intent.wanted - len(members)
    if missing > 0:
        return _scale_out(snapshot, intent, revisions, missing)
    staying = members.where(lambda each: not is_deleting(each.vm)).without(deleted_uids)
    surplus = len(staying) - intent.wanted
    if surplus <= 0:
        return Plan()
    if intent.scale_in.strategy is not Strategy.PROACTIVE:
        strategy = intent.scale_in.strategy
        return Plan(held=f"{surplus} surplus virtual machines stay until a user deletes them: scale-in is {strategy}")
    return _scale_in(snapshot, intent, staying, surplus)


def _scale_out(snapshot: Snapshot, intent: Intent, revisions: Revisions, missing: int) -> Plan:
    owner = snapshot.owner.metadata
    partition = partition_of(snapshot)
    why = f"{intent.wanted - missing} of {intent.wanted} VMs exist"
    creates = []
    slots = _free_slots(snapshot, min(missing, snapshot.limits.burst))
    newest = revisions.current, revisions.template
    below = template_below(snapshot, revisions, partition)
    for ordinal in slots.ordinals:
        revision, template = below if ordinal < partition else newest
        body = body_of(snapshot, intent, ordinal, revision, template)
        key = ObjectKey(owner.namespace, name_of(owner.name, ordinal))
        # The new VM must not use the disk of an earlier VM with the same name, because the garbage collector will
        # delete this disk. The earlier VM can own the claim itself: CDI may delete a finished DataVolume and keep its
        # claim.
        reusable_disks = tuple(
            (resource, ObjectKey(owner.namespace, disk))
            for disk in own_disks(template, ordinal)
            for resource in (DATA_VOLUMES, PVCS)
        )
        creates.append(
            Create(resource=VMS, key=key, body=body, owner_uid=owner.uid, why=why, reusable_disks=reusable_disks)
        )
    held = f"{missing - len(creates)} more creates wait for the next pass" if len(creates) < missing else ""
    stages = (*_confirmation(snapshot, slots), *plan_revision(snapshot, revisions), Stage(tuple(creates)))
    return Plan(stages=stages, held=held)


class _Slots(Struct, frozen=True):
    """The smallest free ordinals.

    `has_strangers` is true if a VM with a smaller ordinal does not belong to the pool.
    """

    ordinals: tuple[int, ...]
    has_strangers: bool


def _free_slots(snapshot: Snapshot, number: int) -> _Slots:
    # The names of the members are compared first, because a look-up in the cache is slower.
    own = {each.vm.metadata.name for each in snapshot.members}
    ordinals, has_strangers = [], False
    for ordinal in free_ordinals(snapshot.owner.metadata.name, own):
        if name_of(snapshot.owner.metadata.name, ordinal) in snapshot.taken:
            has_strangers = True
            continue
        ordinals.append(ordinal)
        if len(ordinals) == number:
            break
    return _Slots(tuple(ordinals), has_strangers)


def _confirmation(snapshot: Snapshot, slots: _Slots) -> tuple[Stage, ...]:
    """Return a stage that checks on the server that the pool still exists.

    The stage is needed if a VM with one of the smallest ordinals does not belong to the pool. Such a VM may have left
    the pool because a user deleted the pool with `--cascade=orphan`. The cache of pools may not show this deletion yet.

    Without the check, the controller could create VMs for a deleted pool. The garbage collector soon deletes such VMs,
    and their kept disks stay without an owner.
    """
    if not slots.has_strangers:
        return ()
    owner = snapshot.owner.metadata
    why = "confirm the pool before new VMs replace those that left it"
    return (Stage((Confirm(resource=snapshot.pools, key=owner.key, uid=owner.uid, why=why),)),)


def _scale_in(snapshot: Snapshot, intent: Intent, staying: Machines, surplus: int) -> Plan:
    most = min(surplus, snapshot.limits.burst)
    candidates = choose_for_removal(snapshot, intent.scale_in.selection, staying, most=most)
    wanted = [each.vm for each in candidates.ranked]
    chosen = [vm for vm in wanted if vm.metadata.uid not in candidates.delicate]
    delicate = [vm for vm in wanted if vm.metadata.uid in candidates.delicate]
    unsafe = [vm for vm in chosen if intent.scale_in.preserve and not is_safe_to_delete(snapshot, vm)]
    why = f"surplus: {len(staying)} VMs exist, {intent.wanted} are wanted"
    keep_disks = intent.scale_in.preserve
    deletes = tuple(delete_of(vm, why, keep_disks=keep_disks) for vm in chosen if vm not in unsafe)
    undeletable = surplus - candidates.deletable
    held = ""
    if undeletable > 0:
        held = f"{undeletable} surplus virtual machines may not be deleted"
    elif delicate:
        reason = candidates.delicate[delicate[0].metadata.uid]
        held = f"{len(delicate)} surplus virtual machines are not deleted now, because {reason}"
    elif len(deletes) < surplus:
        held = f"{surplus - len(deletes)} more deletes wait for the next pass"
    return Plan(
        stages=(*add_finalizers(unsafe), *((Stage(deletes),) if deletes else ())),
        notices=(
            *((_surplus_notice(snapshot, intent, candidates, undeletable),) if undeletable > 0 else ()),
            *(_delicate_notice(vm, candidates.delicate[vm.metadata.uid]) for vm in delicate[:MAX_NOTICES]),
        ),
        held=held,
    )


def _delicate_notice(vm: VirtualMachine, reason: str) -> Notice:
    """Return an Event about a surplus VM that is not deleted while KubeVirt works on the VM or its disks."""
    return Notice(
        reason="ScaleInHeld",
        message=f"{vm.metadata.name} is surplus, but is not deleted now: {reason}",
        once=f"scale-in held {vm.metadata.uid} {reason}",
    )


def _surplus_notice(snapshot: Snapshot, intent: Intent, candidates: Candidates, undeletable: int) -> Notice:
    """Return an Event about the surplus VMs that may not be deleted (P8).

    The Event is sent again only if the spec or the wanted number of VMs changes.
    """
    reasons = []
    if candidates.unselected:
        reasons.append(f"{candidates.unselected} do not match the selectors of scaleInStrategy")
    if candidates.protected:
        reasons.append(f"{candidates.protected} are protected by {PROTECT}")
    return Notice(
        reason="ProtectedFromDeletion" if not candidates.unselected else "ScaleInIncomplete",
        message=f"{undeletable} surplus virtual machines stay, {intent.wanted} are wanted: {', '.join(reasons)}",
        once=f"kept {snapshot.owner.metadata.generation} {intent.wanted}",
    )
