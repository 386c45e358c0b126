"""As many VMs as are wanted: creates under the smallest free ordinals (P3, P4), deletes by policy (P8, P9).

A VM that is being deleted is still there: it counts, it has its name, and it counts towards those that are to go. So
there is never a VM too many, and no VM is deleted for one that is on its way out already.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

from controller.apimachinery.owner_references import controller_reference
from controller.kubevirt.annotations import PROTECT
from controller.kubevirt.resources import DATA_VOLUMES, VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import is_deleting
from controller.pool.disks import holds, is_safe
from controller.pool.indexing import encode_vm, own_disks
from controller.pool.intent import Intent
from controller.pool.naming import free_ordinals, name_of
from controller.pool.policies import Strategy
from controller.pool.revisions import Revisions, plan_revision
from controller.pool.rollout import partition_of, template_for
from controller.pool.select import Candidates, choose_for_removal
from controller.pool.snapshot import Snapshot
from controller.runtime.plan import Cause, Create, Delete, Notice, Plan, Stage
from informers.meta import ObjectKey


def plan_scale(
    snapshot: Snapshot,
    intent: Intent,
    revisions: Revisions,
    members: tuple[VirtualMachine, ...],
    *,
    going: Collection[str] = (),
) -> Plan:
    """Bring the number of members to what is wanted. `going` are the UIDs that this same pass deletes already."""
    missing = intent.wanted - len(members)
    if missing > 0:
        return _scale_out(snapshot, intent, revisions, missing)
    staying = tuple(vm for vm in members if not is_deleting(vm) and vm.metadata.uid not in going)
    surplus = len(staying) - intent.wanted
    if surplus <= 0:
        return Plan()
    if intent.scale_in.strategy is not Strategy.PROACTIVE:
        return Plan(held=f"{surplus} more than wanted stay until somebody deletes them: {intent.scale_in.strategy}")
    return _scale_in(snapshot, intent, staying, surplus)


def delete_of(vm: VirtualMachine, why: str, *, foreground: bool = False, cause: Cause = Cause.UNSPECIFIED) -> Delete:
    meta = vm.metadata
    return Delete(resource=VMS, key=meta.key, uid=meta.uid, why=why, foreground=foreground, cause=cause)


def _scale_out(snapshot: Snapshot, intent: Intent, revisions: Revisions, missing: int) -> Plan:
    owner = snapshot.owner.metadata
    reference = controller_reference(snapshot.pools, owner)
    partition = partition_of(snapshot).number
    why = f"{intent.wanted - missing} of {intent.wanted} are there"
    creates = []
    for ordinal in islice(free_ordinals(owner.name, snapshot.taken), min(missing, snapshot.limits.burst)):
        revision, template = template_for(snapshot, revisions, ordinal, partition)
        body = encode_vm(template, ordinal, revision, resource=VMS, pool=owner, owner=reference)
        key = ObjectKey(owner.namespace, name_of(owner.name, ordinal))
        # What the collector is about to take of an earlier VM of this ordinal must not become this one's.
        reusable_disks = tuple(
            (DATA_VOLUMES, ObjectKey(owner.namespace, disk)) for disk in own_disks(template, ordinal)
        )
        creates.append(
            Create(resource=VMS, key=key, body=body, owner_uid=owner.uid, why=why, reusable_disks=reusable_disks)
        )
    held = f"{missing - len(creates)} more creates wait for the next pass" if len(creates) < missing else ""
    return Plan(stages=(*plan_revision(snapshot, revisions), Stage(tuple(creates))), held=held)


def _scale_in(snapshot: Snapshot, intent: Intent, staying: tuple[VirtualMachine, ...], surplus: int) -> Plan:
    candidates = choose_for_removal(snapshot, intent.scale_in.selection, staying)
    victims = candidates.ranked[: min(surplus, snapshot.limits.burst)]
    unsafe = [vm for vm in victims if intent.scale_in.preserve and not is_safe(snapshot, vm)]
    why = f"surplus: {len(staying)} are there, {intent.wanted} wanted"
    deletes = tuple(delete_of(vm, why) for vm in victims if vm not in unsafe)
    short = surplus - len(candidates.ranked)
    held = ""
    if short > 0:
        held = f"{short} more than wanted may not be deleted"
    elif len(deletes) < surplus:
        held = f"{surplus - len(deletes)} more deletes wait for the next pass"
    return Plan(
        stages=(*holds(unsafe), *((Stage(deletes),) if deletes else ())),
        notices=candidates.notices + ((_kept(snapshot, intent, candidates, short),) if short > 0 else ()),
        held=held,
    )


def _kept(snapshot: Snapshot, intent: Intent, candidates: Candidates, short: int) -> Notice:
    """Fewer match than should go: only those go, and the user is told, once for each wish (P8)."""
    reasons = []
    if candidates.unselected:
        reasons.append(f"{candidates.unselected} are not selected by scaleInStrategy")
    if candidates.protected:
        reasons.append(f"{candidates.protected} are marked {PROTECT}")
    return Notice(
        reason="ProtectedFromDeletion" if not candidates.unselected else "ScaleInIncomplete",
        message=f"{short} more virtual machines than the {intent.wanted} wanted stay: {', '.join(reasons)}",
        once=f"kept {snapshot.owner.metadata.generation} {intent.wanted}",
    )
