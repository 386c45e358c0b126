"""Decides which flocks the controller reconciles after a change of an object, and when."""

from collections.abc import Iterable

from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_deleting, is_ready
from controller.runtime.triggers import Wake, itself, wakes_of
from informers.meta import ObjectKey, controller_of
from informers.store import Change
from tests.examples.flock.types import Flock


def flocks_of_flock(change: Change[Flock]) -> Iterable[Wake]:
    return wakes_of(
        change,
        itself,
        decides_by=lambda flock: (flock.metadata.uid, flock.metadata.deletion_timestamp, flock.spec),
        counts_by=lambda flock: flock.status,
    )


def flocks_of_vmi(change: Change[VirtualMachineInstance]) -> Iterable[Wake]:
    return wakes_of(change, _owner_of, decides_by=is_deleting, counts_by=is_ready)


def _owner_of(vmi: VirtualMachineInstance) -> Iterable[ObjectKey]:
    owner = controller_of(vmi.metadata)
    is_flock = owner is not None and owner.kind == "VirtualMachineFlock"
    return (ObjectKey(vmi.metadata.namespace, owner.name),) if owner is not None and is_flock else ()
