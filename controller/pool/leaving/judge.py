"""Judges the delete of a VM, and the restart of its VMI, again from the objects that the server has now (P20)."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from controller.kubevirt.delicate import UNREADABLE, delicate_reason, reason_to_keep
from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.runtime.actions import Delete, Restart
from controller.runtime.execute.deletes import Found, Judge
from informers.meta import KubeObject
from informers.resource import Resource

T = TypeVar("T", bound=KubeObject)

_NO_VM: Final = VirtualMachine()


def obstacle(action: Delete | Restart, found: Found) -> str:
    """Return the reason why the VM must not be deleted or its VMI must not be restarted now, or ""."""
    try:
        vm, vmi = _decoded(VMS, found), _decoded(VMIS, found)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UNREADABLE
    if isinstance(action, Delete) and action.resource is VMS:
        return reason_to_keep(vm or _NO_VM, vmi)
    return delicate_reason(vm or _NO_VM, vmi, may_interrupt_resizing=True)


def _decoded(resource: Resource[T], found: Found) -> T | None:
    return resource.decode(found[resource]) if resource in found else None


JUDGE: Final = Judge((VMS, VMIS), obstacle)
