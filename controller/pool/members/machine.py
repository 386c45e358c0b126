"""A member of a pool: a VM with its VMI and its unready period."""

from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct

from controller.kubevirt.annotations import IN_SERVICE, REVISION_NAME, VM_GENERATION, standby_mark
from controller.kubevirt.busy import ends_of_marks
from controller.kubevirt.live_updates import restart_required
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vms import revision_of, should_run, template_labels_of
from controller.pool.members.unready_periods import UnreadyPeriod
from controller.replicas.draining import Guest, guest_of_vm, is_draining
from controller.runtime.members.groups import Members, like
from informers.meta import ObjectMeta, annotations_of, is_controlled_by, labels_of
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
    """Return the VMI of the VM, with the revision that it runs. If KubeVirt says that it runs the present spec of the
    VM, this is the VM's revision: a policy or another controller may have changed the label of the VMI. KubeVirt also
    says so if a VM gets the spec of its start back after a live change. But then it asks for a restart.

    A VMI with the VM's name can belong to another owner, or to an earlier VM with the same name.
    """
    vmi = vmis.get(vm.metadata.key)
    if vmi is None or not is_controlled_by(vmi.metadata, vm.metadata.uid):
        return None
    revision, meta = revision_of(vm), vmi.metadata
    runs_spec = annotations_of(meta).get(VM_GENERATION) == str(vm.metadata.generation)
    if not revision or not runs_spec or restart_required(vm) is not None or vmi_revision_of(vmi) == revision:
        return vmi
    return like(vmi, metadata=like(meta, labels={**labels_of(meta), REVISION_NAME: revision}))


def vmi_revision_of(vmi: VirtualMachineInstance) -> str:
    return labels_of(vmi.metadata).get(REVISION_NAME, "")


def guest_of(machine: Machine) -> Guest:
    return guest_of_vm(machine.vm, machine.vmi)


def is_hidden(machine: Machine) -> bool:
    """Return True if the VMI is out of the Service to which its VM belongs."""
    is_out = machine.vmi is not None and labels_of(machine.vmi.metadata).get(IN_SERVICE) == "false"
    return is_out and IN_SERVICE in template_labels_of(machine.vm)


def has_drain_mark(machine: Machine) -> bool:
    """Return True if the VM or its VMI has the mark of a drain, or if the VMI is out of service without a reason."""
    vm, vmi = machine.vm, machine.vmi
    if is_draining(vm.metadata) or vmi is None:
        return is_draining(vm.metadata)
    is_served = template_labels_of(vm).get(IN_SERVICE) == "true" and not standby_mark(vm.metadata)
    return (is_served and is_hidden(machine)) or is_draining(vmi.metadata)


def ends_of_work(members: Machines, now: datetime) -> Iterator[datetime]:
    """Yield the times after `now` at which the marks of busy VMs end (P24)."""
    for each in members.traits():
        yield from ends_of_marks(each.vm, each.vmi, now=now)
