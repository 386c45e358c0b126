"""What of a VM is to outlive it (P10): its disks lose it as their owner, before our finalizer lets it go.

Disks are known by their names: those in the VM's spec, and those that earlier templates gave to VMs of its ordinal. A
template that renames a disk changes the VM's spec at once, while the VM owns the old disk, and runs on it, until it is
made anew.

Only a VM that is being deleted loses its disks. From any other the VM controller would take them back, by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.finalizers import addition_patch
from controller.kubevirt.annotations import POOL_FINALIZER
from controller.kubevirt.resources import DATA_VOLUMES, PVCS, VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import disk_names_of, is_deleting, is_deleting_with_disks, is_held
from controller.pool.indexing import own_disks
from controller.pool.policies import parse_scale_in
from controller.pool.revisions import template_of
from controller.pool.snapshot import Snapshot
from controller.pool.template import Template
from controller.runtime.plan import Patch, RemoveOwnerReference, Stage
from informers.meta import ObjectKey
from informers.objects import PatchType


def asks_to_preserve(snapshot: Snapshot) -> bool:
    """Whether disks are to outlive their VMs. Where nobody can tell, they are: what is kept can still be deleted."""
    scale_in = parse_scale_in(snapshot.owner.spec)
    return isinstance(scale_in, FieldError) or scale_in.preserve


def disowns(snapshot: Snapshot, vms: Iterable[VirtualMachine]) -> tuple[RemoveOwnerReference, ...]:
    """Take these VMs off their disks, as far as the disks can still be saved."""
    leaving = [vm for vm in vms if is_deleting(vm) and not is_deleting_with_disks(vm)]
    if not leaving:
        return ()
    past = [template for revision in snapshot.revisions if (template := template_of(revision)) is not None]
    return tuple(disown for vm in leaving for disown in _disowns(vm, _earlier_disks(snapshot, vm, past)))


def disowns_of_left_behind(vms: Iterable[VirtualMachine]) -> tuple[RemoveOwnerReference, ...]:
    """The same for VMs whose pool is gone, and with it the earlier templates."""
    return tuple(disown for vm in vms if not is_deleting_with_disks(vm) for disown in _disowns(vm, ()))


def is_safe(snapshot: Snapshot, vm: VirtualMachine) -> bool:
    """Whether our finalizer would keep this VM, once it is deleted, until its disks are safe.

    It is not asked of a VM that is no VM of ours by its name: if its user detached it, nobody would let it go.
    """
    return is_held(vm) or snapshot.ordinal_of(vm) is None


def holds(vms: Iterable[VirtualMachine]) -> tuple[Stage, ...]:
    """Give our finalizer back to VMs that somebody took it off, before they are deleted in a later pass."""
    patches = tuple(
        Patch(
            resource=VMS,
            key=vm.metadata.key,
            body=addition_patch(vm.metadata, POOL_FINALIZER),
            type=PatchType.MERGE,
            why="its disks are to outlive it",
        )
        for vm in vms
    )
    return (Stage(patches, essential=False),) if patches else ()


def _earlier_disks(snapshot: Snapshot, vm: VirtualMachine, past: Sequence[Template]) -> list[str]:
    ordinal = snapshot.ordinal_of(vm)
    return [name for template in past for name in own_disks(template, ordinal)] if ordinal is not None else []


def _disowns(vm: VirtualMachine, earlier: Sequence[str]) -> list[RemoveOwnerReference]:
    """A DataVolume and its claim share a name, and either may be the VM's own."""
    return [
        RemoveOwnerReference(
            resource=resource,
            key=ObjectKey(vm.metadata.namespace, name),
            owner_uid=vm.metadata.uid,
            why=f"the state of {vm.metadata.name} is kept",
        )
        for name in dict.fromkeys((*disk_names_of(vm), *earlier))
        for resource in (DATA_VOLUMES, PVCS)
    ]
