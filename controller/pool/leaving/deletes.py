"""The actions that delete VMs of a pool, and the Events about VMs that are not deleted now."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from controller.kubevirt.annotations import POOL_FINALIZER
from controller.kubevirt.busy import lasting
from controller.kubevirt.delicate import PROTECTED
from controller.kubevirt.resources import VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import has_pool_finalizer
from controller.pool.leaving.disks import disks_in_use
from controller.replicas.conditions import machines_wait
from controller.replicas.notes import MAX_NOTICES
from controller.runtime.actions import Cause, Delete, Notice, Plan, waiting
from controller.runtime.waits import Why
from informers.meta import controller_of


def delete_of(
    vm: VirtualMachine, why: str, *, keep_disks: bool = False, if_unchanged: bool = False, **fields: Any
) -> Delete:
    """Return the action that deletes a VM. With `keep_disks`, the VM is deleted only while the VM has the pool
    finalizer (P10), and while none of its disks is being deleted (P20). With `if_unchanged`, it gives up after any
    change of the VM, because the reason may be gone: a user may have started the VM again. `fields` are those of the
    action.

    A VM without an ordinal in its name never gets the finalizer. The caller checks first that the VM has the finalizer
    or no ordinal.
    """
    meta, pool = vm.metadata, controller_of(vm.metadata)
    return Delete(
        resource=VMS,
        key=meta.key,
        uid=meta.uid,
        version=meta.resource_version,
        owner_uid=pool.uid if pool is not None and not if_unchanged else "",
        why=why,
        finalizer=POOL_FINALIZER if keep_disks and has_pool_finalizer(vm) else "",
        disks=disks_in_use(vm) if keep_disks else (),
        **fields,
    )


def replacement_of(vm: VirtualMachine, why: str, *, cause: Cause, successor: bytes, keep_disks: bool = False) -> Delete:
    """Return the action that deletes a VM to replace it, with its disks unless `keep_disks`. After any change of the
    VM, it gives up, and a new plan judges the VM again (P20).
    """
    others = {"foreground": not keep_disks, "cause": cause, "successor": successor}
    return delete_of(vm, why, keep_disks=keep_disks, if_unchanged=True, **others)


def hold(topic: str, held: Sequence[tuple[VirtualMachine, str]], pattern: Notice) -> Plan:
    """Return a plan that waits because of what the first of these VMs waits for. Each entry has the reason.

    It has an Event for each VM, at most `MAX_NOTICES`, once for each reason. The message of `pattern` follows the name
    of the VM, and the reason follows the message.
    """
    if not held:
        return Plan()
    names, (_, reason) = tuple(vm.metadata.name for vm, _ in held[:MAX_NOTICES]), held[0]
    others = f", and {machines_wait(len(held) - 1, 'more ')}" if len(held) > 1 else ""
    cause = Why.PROTECTION if reason == PROTECTED else Why.USER
    texts = (
        (f"{vm.metadata.name} {pattern.message}: {why}", f"{pattern.once} {vm.metadata.uid} {lasting(why)}")
        for vm, why in held[:MAX_NOTICES]
    )
    notices = tuple(replace(pattern, message=message, once=once) for message, once in texts)
    return replace(waiting(f"{topic}: {names[0]} waits: {reason}{others}", cause, names=names), notices=notices)
