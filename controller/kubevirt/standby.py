"""Standby VMs: a pool keeps some VMs beside its wanted ones. They have been ready once, and then they rest (P32).

The annotation `STANDBY_STATE` is the mark of such a VM. A VM that a user has started or unpaused, or that is busy
before its rest, is an ordinary VM again, although it still has the mark. So is a claimed VM, until its claim ends. A
woken VM keeps the time until it is ready: its objects show only since when it rests.

A VM that rests paused has the UID of its VMI in the mark. If its VMI is another one, the memory is lost. A request to
pause it may come late, if its answer was lost. So the mark comes first, and a VM that was paused keeps the time of its
wake for `LATE`: in this time it is unpaused again.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from controller.apimachinery.conditions import with_timezone
from controller.apimachinery.raw_json import text_of, value_at
from controller.kubevirt.annotations import (
    DRAINING,
    IN_SERVICE,
    PAUSED,
    PAUSING,
    STANDBY_STATE,
    is_to_be_paused,
    standby_mark,
)
from controller.kubevirt.busy import is_claimed, time_of
from controller.kubevirt.delicate import is_busy
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_active, is_paused
from controller.kubevirt.vms import is_deleting, should_run, template_labels_of
from informers.meta import ObjectMeta, annotations_of


class Standby(StrEnum):
    """The marks, beside `PAUSED` with a UID. A VM that is being prepared starts, and rests when it is ready."""

    PREPARING = "preparing"
    RESTING = "resting"
    PAUSING = PAUSING


WOKEN: Final = "woken "
"""The beginning of the mark of a VM that was woken. The time follows."""

LATE: Final = timedelta(seconds=30)
"""The longest time after which a request to pause a VM may still come."""


TAKEN: Final = "(taken)"
"""A snapshot has this annotation on a VM whose mark the server has not: it is remembered, or its state tells it."""


def has_standby_mark(meta: ObjectMeta) -> bool:
    mark = standby_mark(meta)
    return bool(mark) and not mark.startswith(WOKEN)


def has_strange_mark(meta: ObjectMeta) -> bool:
    """Return True if the VM has a mark that vmherd has not written on it."""
    return STANDBY_STATE in annotations_of(meta) and not standby_mark(meta)


def note_of(mark: str, name: str) -> dict[str, str]:
    """Return the annotation that gives the VM of this name the mark (see `standby_mark`)."""
    return {STANDBY_STATE: f"{mark} {name}"}


def is_woken(meta: ObjectMeta) -> bool:
    return standby_mark(meta).startswith(WOKEN)


def woken_at(meta: ObjectMeta) -> datetime | None:
    """Return the time at which a standby was woken, or None if it was not, or is ready since then."""
    return time_of(standby_mark(meta).removeprefix(WOKEN)) if is_woken(meta) else None


def mark_in(body: bytes) -> str:
    """Return the mark that this body of a request writes, or "". A template may have the same words elsewhere."""
    if STANDBY_STATE.encode() not in body:
        return ""
    return text_of(value_at(body, "metadata", "annotations", STANDBY_STATE)) or ""


def is_resting(meta: ObjectMeta) -> bool:
    mark = standby_mark(meta)
    return mark == Standby.RESTING or mark.startswith(PAUSED)


def standby_word(meta: ObjectMeta) -> str:
    """Return the first word of the mark, for the views."""
    return standby_mark(meta).partition(" ")[0]


def rests_with(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> bool:
    """Return True if the VMI is the one that was paused, and still runs or is paused."""
    is_same = vmi is not None and standby_mark(vm.metadata) == f"{PAUSED}{vmi.metadata.uid}"
    return is_same and vmi is not None and is_active(vmi)


def is_to_unpause(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> bool:
    """Return True if the VMI of an ordinary VM is paused because the VM was a standby."""
    if vmi is None or not is_active(vmi) or not is_paused(vmi):
        return False
    return is_to_be_paused(vm.metadata) or was_paused(vm, vmi)


def was_paused(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> bool:
    """Return True if the woken VM has the VMI with which it rested."""
    woken, created = woken_at(vm.metadata), with_timezone(vmi.metadata.creation_timestamp) if vmi is not None else None
    return woken is not None and created is not None and created < woken


def lost_mark(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> str:
    """Return the mark that a standby at rest has lost, or "". Its template is out of service, as if it drained."""
    if template_labels_of(vm).get(IN_SERVICE) != "false" or DRAINING in annotations_of(vm.metadata):
        return ""
    if vmi is not None and is_active(vmi):
        return f"{PAUSED}{vmi.metadata.uid}" if is_paused(vmi) else ""
    return Standby.RESTING if vm.spec is not None and vm.spec.run_strategy == "Halted" else ""


def is_standby(vm: VirtualMachine, vmi: VirtualMachineInstance | None, now: datetime) -> bool:
    """Return True for a standby. A VM in service is none, also with a mark. Other marks count as `preparing`."""
    is_serving = template_labels_of(vm).get(IN_SERVICE) == "true"
    if not has_standby_mark(vm.metadata) or is_serving or is_claimed(vm.metadata):
        return False
    if is_deleting(vm):
        return True
    if standby_mark(vm.metadata) == Standby.RESTING:
        return not should_run(vm, vmi)
    is_unpaused = rests_with(vm, vmi) and vmi is not None and not is_paused(vmi)
    return not is_unpaused and not is_busy(vm, vmi, now)


def is_beside(vm: VirtualMachine, vmi: VirtualMachineInstance | None, now: datetime) -> bool:
    """Return True if the VM does not count as one of the wanted ones: it is claimed (P33) or a standby."""
    return is_claimed(vm.metadata) or is_standby(vm, vmi, now)
