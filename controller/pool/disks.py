"""State preservation: the disks of a deleted VM are kept (P10).

The disks lose the VM's owner reference before the VM loses the pool finalizer.

Disks are found by name: the names in the VM's spec, and the names that earlier templates gave to VMs with this ordinal.
The earlier names are needed because a template can rename a disk. The VM's spec then has the new name at once, but the
VM owns and uses the old disk until the VM is recreated.

Only disks of terminating VMs lose the owner reference. For any other VM, the VM controller would add the reference
again, because it finds the disks by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.finalizers import addition_patch
from controller.kubevirt.annotations import POOL_FINALIZER
from controller.kubevirt.resources import DATA_VOLUMES, PVCS, VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import disk_names_of, has_pool_finalizer, is_deleting, is_deleting_with_disks
from controller.pool.indexing import own_disks
from controller.pool.policies import parse_scale_in
from controller.pool.revisions import template_of
from controller.pool.snapshot import Snapshot
from controller.pool.template import Template
from controller.runtime.plan import Patch, RemoveOwnerReference, Stage
from informers.meta import ObjectKey
from informers.objects import PatchType


def preserves_disks(snapshot: Snapshot) -> bool:
    """True if the pool keeps the disks of deleted VMs.

    Disks are also kept if `scaleInStrategy` is invalid, because a kept disk can still be deleted later.
    """
    scale_in = parse_scale_in(snapshot.owner.spec)
    return isinstance(scale_in, FieldError) or scale_in.preserve


def owner_removals(snapshot: Snapshot, vms: Iterable[VirtualMachine]) -> tuple[RemoveOwnerReference, ...]:
    """Remove the owner references to these VMs from their disks, so that the disks are kept.

    VMs that are not terminating are skipped. VMs in foreground deletion are skipped too, because their disks are
    deleted in any case.
    """
    terminating = [vm for vm in vms if is_deleting(vm) and not is_deleting_with_disks(vm)]
    if not terminating:
        return ()
    past = [template for revision in snapshot.revisions if (template := template_of(revision)) is not None]
    return tuple(action for vm in terminating for action in _owner_removals(vm, _earlier_disks(snapshot, vm, past)))


def owner_removals_of_left_behind(vms: Iterable[VirtualMachine]) -> tuple[RemoveOwnerReference, ...]:
    """Remove the owner references to these VMs from their disks, if their pool no longer exists.

    The earlier templates do not exist either, so only the disks in a VM's spec are kept. VMs in foreground deletion are
    skipped, because their disks are deleted in any case.
    """
    return tuple(action for vm in vms if not is_deleting_with_disks(vm) for action in _owner_removals(vm, ()))


def is_safe_to_delete(snapshot: Snapshot, vm: VirtualMachine) -> bool:
    """True if the VM has the pool finalizer. The finalizer keeps a deleted VM until its disks are safe.

    VMs whose names the pool did not generate are exempt: once detached, nothing would remove their finalizer.
    """
    return has_pool_finalizer(vm) or snapshot.ordinal_of(vm) is None


def add_finalizers(vms: Iterable[VirtualMachine]) -> tuple[Stage, ...]:
    """Add the pool finalizer to VMs that lost it. A later pass can then delete these VMs and keep their disks."""
    patches = tuple(
        Patch(
            resource=VMS,
            key=vm.metadata.key,
            body=addition_patch(vm.metadata, POOL_FINALIZER),
            type=PatchType.MERGE,
            why="its disks must be kept when it is deleted",
        )
        for vm in vms
    )
    return (Stage(patches, essential=False),) if patches else ()


def _earlier_disks(snapshot: Snapshot, vm: VirtualMachine, past: Sequence[Template]) -> list[str]:
    """The names of the disks that earlier templates gave to the VM's ordinal."""
    ordinal = snapshot.ordinal_of(vm)
    return [name for template in past for name in own_disks(template, ordinal)] if ordinal is not None else []


def _owner_removals(vm: VirtualMachine, earlier: Sequence[str]) -> list[RemoveOwnerReference]:
    """Remove the VM's owner reference from the disks in its spec, and from the disks with the names `earlier`.

    A DataVolume and its PersistentVolumeClaim have the same name. The VM can own either of them.
    """
    return [
        RemoveOwnerReference(
            resource=resource,
            key=ObjectKey(vm.metadata.namespace, name),
            owner_uid=vm.metadata.uid,
            why=f"the disks of {vm.metadata.name} must be kept",
        )
        for name in dict.fromkeys((*disk_names_of(vm), *earlier))
        for resource in (DATA_VOLUMES, PVCS)
    ]
