"""A member of a pool: a VM with its VMI and its unready period."""

from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct

from controller.kubevirt.annotations import REVISION_NAME
from controller.kubevirt.busy import ends_of_marks
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vms import should_run
from controller.pool.members.unready_periods import UnreadyPeriod
from controller.replicas.draining import Guest, guest_of_vm
from controller.runtime.members.groups import Members
from informers.meta import ObjectMeta, is_controlled_by, labels_of
from informers.store import StoreView


class Machine(Struct, frozen=True, gc=False):
    """A VM that the pool controls.

    `vmi` is the VMI that the VM controls, or None. `downtime` is the unready period of this VM, or None (P15).
    """

    vm: VirtualMachine
    vmi: VirtualMachineInstance | None = None
    downtime: UnreadyPeriod | None = None

    @property
    def metadata(self) -> ObjectMeta:
        return self.vm.metadata

    @property
    def should_run(self) -> bool:
        return should_run(self.vm, self.vmi)


Machines = Members[Machine]


def own_vmi(vm: VirtualMachine, vmis: StoreView[VirtualMachineInstance]) -> VirtualMachineInstance | None:
    """A VMI with the VM's name can belong to another owner, or to an earlier VM with the same name."""
    vmi = vmis.get(vm.metadata.key)
    return vmi if vmi is not None and is_controlled_by(vmi.metadata, vm.metadata.uid) else None


def vmi_revision_of(vmi: VirtualMachineInstance) -> str:
    return labels_of(vmi.metadata).get(REVISION_NAME, "")


def guest_of(machine: Machine) -> Guest:
    return guest_of_vm(machine.vm, machine.vmi)


def ends_of_work(members: Machines, now: datetime) -> Iterator[datetime]:
    """Yield the times after `now` at which the marks of busy VMs end (P24)."""
    for each in members.traits():
        yield from ends_of_marks(each.vm, each.vmi, now=now)
