"""The finalizer on the pool itself, and the deletion of a pool (P6).

The pool gets the finalizer before the pool's first VM is created. When a user deletes the pool, the VMs lose the pool
finalizer first, and the pool loses its finalizer last. The garbage collector then deletes the VMs. If the user deleted
the pool with `--cascade=orphan`, the VMs and their disks stay.

If the pool keeps disks, the controller deletes the VMs itself. It then removes the owner references from the disks
(P10), and after that the finalizer from the VMs. With `--cascade=foreground`, no disk and no VM can be kept, because
the garbage collector deletes them at once.
"""

from typing import Final

from msgspec.structs import replace

from controller.apimachinery.finalizers import addition_patch
from controller.kubevirt.annotations import CLAIMED_BY, POOL_FINALIZER, is_protected
from controller.kubevirt.busy import is_claim_of_backup, is_claimed
from controller.kubevirt.delicate import UNREADABLE, reason_to_keep
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import has_pool_finalizer, is_deleting
from controller.pool.leaving.claims import plan_releases, remove_finalizers
from controller.pool.leaving.deletes import delete_of, hold
from controller.pool.leaving.disks import (
    add_finalizers,
    finalizer_patch,
    hides_disks,
    is_safe_to_delete,
    remove_finalizer,
)
from controller.pool.members.machine import Machine
from controller.pool.members.revisions import delete_orphaned
from controller.pool.members.snapshot import Snapshot
from controller.runtime.actions import Notice, Plan, Stage, stage_of, waiting
from controller.runtime.members.groups import by_name
from informers.meta import annotations_of

ORPHAN: Final = "orphan"
"""The finalizer that `--cascade=orphan` adds to a deleted owner."""


def has_finalizer(snapshot: Snapshot) -> bool:
    return POOL_FINALIZER in (snapshot.owner.metadata.finalizers or ())


def plan_own_finalizer(snapshot: Snapshot) -> Plan:
    """Plan a patch that adds a missing finalizer to the pool, before the creation of the first VM."""
    if has_finalizer(snapshot):
        return Plan()
    why = "the pool needs its finalizer before its first VM"
    patch = finalizer_patch(snapshot.pools, snapshot.owner.metadata, addition_patch, why)
    return Plan(stages=(Stage((patch,)),))


def plan_deletion(snapshot: Snapshot) -> Plan:
    """Plan the next reconciliation of a pool that is being deleted.

    VMs lose the pool finalizer. If the pool keeps disks, at most `burst` VMs are also deleted. A protected VM leaves
    the pool and stays. A delicate VM delays the deletion of a pool that keeps disks (P20), and the others go. With
    `--cascade=orphan`, the VMs stay, and the pool's revisions are deleted, because the garbage collector does not. If
    nothing else is written, the pool loses its finalizer.
    """
    preserve, machines = snapshot.keeps_disks, by_name(snapshot.members)
    orphans = ORPHAN in (snapshot.owner.metadata.finalizers or ())
    deletes_vms = preserve and not orphans
    staying = [each for each in machines if not (orphans or is_deleting(each.vm))]
    protected = [each for each in staying if is_protected(each.metadata)]
    unprotected = [each for each in staying if deletes_vms and not is_protected(each.metadata)]
    judged = [(each.vm, _reason_to_wait(snapshot, each)) for each in unprotected]
    held = [(vm, reason) for vm, reason in judged if reason]
    with_finalizer = (each.vm for each in machines if has_pool_finalizer(each.vm))
    to_release = [vm for vm in with_finalizer if is_deleting(vm) or not deletes_vms]
    to_delete = [vm for vm, reason in judged if not reason][: snapshot.limits.burst]
    held += [(vm, UNREADABLE) for vm in to_release if preserve and hides_disks(vm)]
    # The revisions contain the disk names of terminating VMs, so the revisions stay until these VMs are gone.
    keeps_revisions = preserve and any(map(is_deleting, to_release))
    # After a deletion with `--cascade=orphan`, the cache may not show yet that the VMs have no owner. Each delete names
    # the version in the cache, so such a VM is not deleted.
    why = "its pool is being deleted"
    # The next user must not find the data of a claim, so its disks go (P33).
    keeping = [vm for vm in to_delete if _keeps_disks(vm)]
    deletes = [delete_of(vm, why, keep_disks=True) for vm in keeping if is_safe_to_delete(snapshot, vm)]
    going = (vm for vm in to_delete if not _keeps_disks(vm))
    deletes += [delete_of(vm, why, if_unchanged=True, foreground=True) for vm in going]
    stages = (
        *remove_finalizers(snapshot, to_release),
        *plan_releases(snapshot, protected, why="it is protected, and its pool is being deleted").stages,
        *add_finalizers(vm for vm in keeping if not is_safe_to_delete(snapshot, vm)),
        *stage_of(deletes),
        *(() if keeps_revisions else delete_orphaned(snapshot, orphans=orphans)),
    )
    # Without stages, no VM has the finalizer any more, and no orphaned revision exists.
    if has_finalizer(snapshot) and not stages and not held:
        why = "no VM has the pool finalizer any more"
        stages = (Stage((remove_finalizer(snapshot.pools, snapshot.owner.metadata, why),)),)
    pattern = Notice(reason="ScaleInHeld", message="is not deleted with its pool now", once="deletion held")
    waits = hold("its deletion", held, pattern) if held else waiting("the pool is being deleted")
    return replace(waits, stages=stages)


def _keeps_disks(vm: VirtualMachine) -> bool:
    """Return False for a claimed VM (P33). One that a backup has restored may have the only copy of its data."""
    return not is_claimed(vm.metadata) or is_claim_of_backup(vm.metadata)


def _reason_to_wait(snapshot: Snapshot, machine: Machine) -> str:
    """Return why the VM must not be deleted now, or "". A claim is no reason, because it ends with its pool (P33)."""
    vm = machine.vm
    if is_claimed(machine.metadata):
        unclaimed = dict(annotations_of(machine.metadata))
        del unclaimed[CLAIMED_BY]
        vm = replace(vm, metadata=replace(vm.metadata, annotations=unclaimed))
    return reason_to_keep(vm, machine.vmi, snapshot.now)
