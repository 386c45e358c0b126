"""The action that deletes a VM of a pool."""

from __future__ import annotations

from typing import Final

from controller.kubevirt.annotations import POOL_FINALIZER
from controller.kubevirt.resources import VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import has_pool_finalizer
from controller.runtime.actions import Cause, Delete
from informers.meta import controller_of

MAX_NOTICES: Final = 10
"""The maximum number of Events about VMs that are not deleted, in one reconciliation."""


def delete_of(
    vm: VirtualMachine,
    why: str,
    *,
    foreground: bool = False,
    keep_disks: bool = False,
    cause: Cause = Cause.UNSPECIFIED,
    successor: bytes = b"",
) -> Delete:
    """Return the action that deletes a VM. With `keep_disks`, the VM is deleted only while the VM has the pool
    finalizer (P10).

    If `successor` is not empty, the VM is deleted to be replaced. The reason for that is in its status. So after any
    change of the VM, the action gives up, and a new plan judges the VM again (P20).

    A VM without an ordinal in its name never gets the finalizer. The caller checks first that the VM has the finalizer
    or no ordinal.
    """
    meta, pool = vm.metadata, controller_of(vm.metadata)
    return Delete(
        resource=VMS,
        key=meta.key,
        uid=meta.uid,
        version=meta.resource_version,
        owner_uid=pool.uid if pool is not None and not successor else "",
        why=why,
        foreground=foreground,
        finalizer=POOL_FINALIZER if keep_disks and has_pool_finalizer(vm) else "",
        cause=cause,
        successor=successor,
    )
