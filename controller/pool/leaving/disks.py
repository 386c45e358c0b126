"""State preservation: the pool keeps the disks of a deleted VM (P10).

The disks lose their owner reference to the VM before the VM loses the pool finalizer.

The controller finds disks by name. It uses the disk names from the VM's spec and from earlier templates. The earlier
names are needed because a new template can rename a disk. The VM's spec then has the new name at once. But the VM owns
and uses the old disk until the VM is recreated.

Only the disks of terminating VMs lose the owner reference. If a VM is not terminating, KubeVirt's VM controller
restores a removed owner reference.
"""

from collections.abc import Callable, Iterable

from controller.apimachinery.finalizers import addition_patch, exact_removal_patch, removal_patch
from controller.kubevirt.annotations import POOL_FINALIZER
from controller.kubevirt.resources import DATA_VOLUMES, PVCS, VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import disk_names_of, has_pool_finalizer, is_deleting, is_deleting_with_disks
from controller.pool.members.revisions import template_of
from controller.pool.members.snapshot import Snapshot
from controller.pool.spec.indexing import own_disks
from controller.pool.spec.intent import Intent
from controller.runtime.actions import AnyResource, Disks, Patch, RemoveOwnerReference, Stage, stage_of
from informers.meta import ObjectKey, ObjectMeta
from informers.objects import PatchType


def owner_removals(vms: Iterable[VirtualMachine], snapshot: Snapshot | None = None) -> tuple[RemoveOwnerReference, ...]:
    """Return actions that keep the disks of the terminating VMs: they remove the disks' owner references to the VMs.

    VMs in foreground deletion are skipped, because their disks are deleted in any case. With `snapshot`, the disks of
    earlier templates of the pool are kept too.
    """
    terminating = [vm for vm in vms if is_deleting(vm) and not is_deleting_with_disks(vm)]
    revisions = snapshot.revisions if snapshot is not None and terminating else ()
    past = [template for revision in revisions if (template := template_of(revision)) is not None]
    kept_for = kept_label(snapshot.owner.metadata.name if snapshot is not None else "")
    actions = []
    for vm in terminating:
        ordinal, meta = snapshot.ordinal_of(vm) if snapshot is not None else None, vm.metadata
        earlier = (name for template in past for name in own_disks(template, ordinal)) if ordinal is not None else ()
        why = f"the disks of {meta.name} must be kept"
        for resource, key in reusable_disks(meta, dict.fromkeys((*disk_names_of(vm), *earlier))):
            actions.append(
                RemoveOwnerReference(resource=resource, key=key, owner_uid=meta.uid, why=why, kept_for=kept_for)
            )
    return tuple(actions)


def reusable_disks(near: ObjectMeta, names: Iterable[str]) -> Disks:
    """Return the disks with these names in the namespace of `near`. A VM can own the claim itself: CDI may delete a
    finished DataVolume and keep its claim.
    """
    keys = [ObjectKey(near.namespace, name) for name in names]
    return tuple((resource, key) for key in keys for resource in (DATA_VOLUMES, PVCS))


def disks_in_use(vm: VirtualMachine) -> Disks:
    """Return the claims of the VM. One that is being deleted goes when the VM stops (P20). A DataVolume that is deleted
    takes its claim along.
    """
    return tuple((PVCS, ObjectKey(vm.metadata.namespace, name)) for name in disk_names_of(vm))


def usable_disks(intent: Intent, pool: str) -> tuple[str, ...] | None:
    """Return the labels of the disks without an owner that a VM of the pool may use, or None for all (P21)."""
    kept = ("", kept_label(pool)) if intent.scale_in.preserve else ()
    return None if intent.adopts_disks else kept


def kept_label(pool: str) -> str:
    """Return the value of the label on the disks that are kept for a pool. A label has at most 63 characters."""
    return pool[:63].rstrip("-.")


def hides_disks(vm: VirtualMachine) -> bool:
    """Return True if a VM is terminating, and its disks can be kept, but its spec is unreadable. Such a VM keeps the
    pool finalizer until it can be read.
    """
    return bool(vm.undecodable) and is_deleting(vm) and not is_deleting_with_disks(vm)


def is_safe_to_delete(snapshot: Snapshot, vm: VirtualMachine) -> bool:
    """Return True if the controller may delete the VM although the pool keeps disks. The finalizer keeps a deleted VM
    until its disks have lost the owner reference. A VM without an ordinal in its name never gets the finalizer.
    """
    return has_pool_finalizer(vm) or snapshot.ordinal_of(vm) is None


def add_finalizers(vms: Iterable[VirtualMachine]) -> tuple[Stage, ...]:
    """A later reconciliation can then delete these VMs and keep their disks."""
    why = "its disks must be kept when it is deleted"
    return stage_of(finalizer_patch(VMS, vm.metadata, addition_patch, why) for vm in vms)


def remove_finalizer(resource: AnyResource, meta: ObjectMeta, why: str) -> Patch:
    """Return the patch that lets an object go. It is skipped if a disk of the object could not be kept (P10)."""
    return Patch(
        resource=resource,
        key=meta.key,
        uid=meta.uid,
        body=removal_patch(meta, POOL_FINALIZER),
        type=PatchType.JSON,
        why=why,
        after_owner=meta.uid,
        finalizer=POOL_FINALIZER,
    )


def remove_needless_finalizers(vms: Iterable[VirtualMachine]) -> tuple[Stage, ...]:
    return stage_of(finalizer_patch(VMS, vm.metadata, exact_removal_patch, "its pool keeps no disks") for vm in vms)


def finalizer_patch(
    resource: AnyResource, meta: ObjectMeta, body: Callable[[ObjectMeta, str], bytes], why: str
) -> Patch:
    """Return the patch with which an object that stays gets the pool finalizer, or loses it."""
    patch = body(meta, POOL_FINALIZER)
    return Patch(resource=resource, key=meta.key, uid=meta.uid, body=patch, type=PatchType.MERGE, why=why)
