"""The actions that delete VMs of a pool, and the Events about VMs that are not deleted now."""

from collections.abc import Iterable, Sequence
from itertools import islice

from msgspec.structs import replace

from controller.kubevirt.annotations import POOL_FINALIZER
from controller.kubevirt.busy import lasting
from controller.kubevirt.delicate import PROTECTED
from controller.kubevirt.resources import VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import has_pool_finalizer
from controller.replicas.conditions import machines_wait
from controller.replicas.notes import MAX_NOTICES
from controller.runtime.actions import Cause, Delete, Notice, Plan, waiting
from controller.runtime.waits import Why
from informers.meta import controller_of


def delete_of(vm: VirtualMachine, why: str, *, keep_disks: bool = False) -> Delete:
    """Return the action that deletes a VM. With `keep_disks`, the VM is deleted only while the VM has the pool
    finalizer (P10).

    A VM without an ordinal in its name never gets the finalizer. The caller checks first that the VM has the finalizer
    or no ordinal.
    """
    meta, pool = vm.metadata, controller_of(vm.metadata)
    return Delete(
        resource=VMS,
        key=meta.key,
        uid=meta.uid,
        version=meta.resource_version,
        owner_uid=pool.uid if pool is not None else "",
        why=why,
        finalizer=POOL_FINALIZER if keep_disks and has_pool_finalizer(vm) else "",
    )


def replacement_of(vm: VirtualMachine, why: str, *, cause: Cause, successor: bytes, keep_disks: bool = False) -> Delete:
    """Return the action that deletes a VM to replace it. Without `keep_disks`, its disks are deleted with it.

    The reason for the replacement is in the status of the VM. So after any change of the VM, the action gives up, and a
    new plan judges the VM again (P20).
    """
    delete = delete_of(vm, why, keep_disks=keep_disks)
    return replace(delete, owner_uid="", foreground=not keep_disks, cause=cause, successor=successor)


def wait_of(topic: str, held: Sequence[tuple[VirtualMachine, str]]) -> Plan:
    """Return a plan that waits because of what the first of these VMs waits for. Each entry has the reason."""
    if not held:
        return Plan()
    names, (_, reason) = tuple(vm.metadata.name for vm, _ in held[:MAX_NOTICES]), held[0]
    others = f", and {machines_wait(len(held) - 1, 'more ')}" if len(held) > 1 else ""
    cause = Why.PROTECTION if reason == PROTECTED else Why.USER
    return waiting(f"{topic}: {names[0]} waits: {reason}{others}", cause, names=names)


def held_notices(pattern: Notice, held: Iterable[tuple[VirtualMachine, str]]) -> tuple[Notice, ...]:
    """Return an Event for each VM that the controller does not delete now, at most `MAX_NOTICES`.

    `held` has the VMs, each with the reason why it waits. The message of `pattern` follows the name of the VM, and the
    reason follows the message. Each reason is reported once for a VM.
    """
    return tuple(
        replace(
            pattern,
            message=f"{vm.metadata.name} {pattern.message}: {why}",
            once=f"{pattern.once} {vm.metadata.uid} {lasting(why)}",
        )
        for vm, why in islice(held, MAX_NOTICES)
    )
