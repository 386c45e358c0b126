"""State preservation: the pool keeps the disks of a deleted VM (P10).

The disks lose their owner reference to the VM before the VM loses the pool finalizer.

The controller finds disks by name. It uses the disk names from the VM's spec and from earlier templates. The earlier
names are needed because a new template can rename a disk. The VM's spec then has the new name at once. But the VM owns
and uses the old disk until the VM is recreated.

Only the disks of terminating VMs lose the owner reference. If a VM is not terminating, KubeVirt's VM controller
restores a removed owner reference.
"""

from collections.abc import Callable, Iterable, Sequence

from controller.apimachinery.finalizers import addition_patch, exact_removal_patch, removal_patch
from controller.kubevirt.annotations import POOL_FINALIZER
from controller.kubevirt.resources import DATA_VOLUMES, PVCS, VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import disk_names_of, has_pool_finalizer, is_deleting, is_deleting_with_disks
from controller.pool.members.revisions import template_of
from controller.pool.members.snapshot import Snapshot
from controller.pool.spec.intent import Intent
from controller.runtime.actions import AnyResource, Disks, Patch, RemoveOwnerReference, Stage, stage_of
from informers.meta import ObjectKey, ObjectMeta
from informers.objects import PatchType


def owner_removals(vms: Iterable[VirtualMachine], snapshot: Snapshot | None = None) -> tuple[RemoveOwnerReference, ...]:
    """Return actions that keep the disks of these VMs. The actions remove the disks' owner references to the VMs.

    Only terminating VMs are considered. VMs in foreground deletion are skipped, because their disks are deleted in any
    case. With `snapshot`, the disks of earlier templates of the pool are kept too.
    """
    terminating = [vm for vm in vms if is_deleting(vm) and not is_deleting_with_disks(vm)]
    revisions = snapshot.revisions if snapshot is not None and terminating else ()
    past = [template for revision in revisions if (template := template_of(revision)) is not None]
    names = dict.fromkeys(name for template in past for name in template.disks if name)
    actions = []
    for vm in terminating:
        ordinal = snapshot.ordinal_of(vm) if snapshot is not None else None
        earlier = [f"{name}-{ordinal}" for name in names] if ordinal is not None else []
        actions += _owner_removals(vm, earlier, snapshot.owner.metadata.name if snapshot is not None else "")
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
    """Return True if a VM is terminating, and its disks can be kept, but the disks in its spec are unreadable.

    Such a VM keeps the pool finalizer until its spec can be read.
    """
    return bool(vm.undecodable) and is_deleting(vm) and not is_deleting_with_disks(vm)


def is_safe_to_delete(snapshot: Snapshot, vm: VirtualMachine) -> bool:
    """Return True if the controller may delete the VM although the pool keeps disks.

    The VM must have the pool finalizer. The finalizer keeps a deleted VM until its disks have lost the owner reference.
    There is one exception: a VM without an ordinal in its name never gets the finalizer, so the controller may always
    delete such a VM.
    """
    return has_pool_finalizer(vm) or snapshot.ordinal_of(vm) is None


def add_finalizers(vms: Iterable[VirtualMachine]) -> tuple[Stage, ...]:
    """Return a stage that adds the pool finalizer to these VMs. A later reconciliation can then delete the VMs and keep
    their disks.
    """
    return _finalizer_patches(vms, addition_patch, "its disks must be kept when it is deleted")


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
    """Return a stage that removes the pool finalizer from VMs that stay, if the pool keeps no disks."""
    return _finalizer_patches(vms, exact_removal_patch, "its pool keeps no disks")


def _finalizer_patches(
    vms: Iterable[VirtualMachine], body: Callable[[ObjectMeta, str], bytes], why: str
) -> tuple[Stage, ...]:
    return stage_of(
        Patch(resource=VMS, key=meta.key, uid=meta.uid, body=body(meta, POOL_FINALIZER), type=PatchType.MERGE, why=why)
        for meta in (vm.metadata for vm in vms)
    )


def _owner_removals(vm: VirtualMachine, earlier: Sequence[str], pool: str) -> list[RemoveOwnerReference]:
    """Return actions that remove the VM's owner reference from its disks.

    These are the disks in the VM's spec and in `earlier`. Each name gives two actions: one for the DataVolume and one
    for the PersistentVolumeClaim. The VM can own either of them.
    """
    return [
        RemoveOwnerReference(
            resource=resource,
            key=key,
            owner_uid=vm.metadata.uid,
            why=f"the disks of {vm.metadata.name} must be kept",
            kept_for=kept_label(pool),
        )
        for resource, key in reusable_disks(vm.metadata, dict.fromkeys((*disk_names_of(vm), *earlier)))
    ]
