"""Events about VMs and VMIs with a field that cannot be decoded (R3, P7).

The controller still counts such an object, but reads only its metadata. The Events of one object
come at growing intervals: when the object is seen first, and each time its age has doubled.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from controller.apimachinery.conditions import with_timezone
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.runtime.actions import Notice

UNDECODABLE: Final = "UndecodableVirtualMachine"

MAX_NOTICES: Final = 10


def undecodable_notices(
    objects: Iterable[VirtualMachine | VirtualMachineInstance], now: datetime
) -> tuple[Notice, ...]:
    """Return an Event for each undecodable object, at most `MAX_NOTICES`."""
    found = sorted((each for each in objects if each.undecodable), key=lambda each: each.metadata.name)
    return tuple(_notice(each, now) for each in found[:MAX_NOTICES])


def _notice(each: VirtualMachine | VirtualMachineInstance, now: datetime) -> Notice:
    meta = each.metadata
    is_vm = isinstance(each, VirtualMachine)
    created = with_timezone(meta.creation_timestamp) or now
    doublings = max(int((now - created).total_seconds()), 0).bit_length()
    effect = "not healed, updated or scaled in" if is_vm else "not ready, and not deleted"
    name = f"virtual machine {'' if is_vm else 'instance '}{meta.name}"
    return Notice(
        reason=UNDECODABLE,
        message=f"{name} has a field that cannot be decoded ({each.undecodable}): it is {effect}",
        once=f"{meta.uid} {doublings}",
    )
