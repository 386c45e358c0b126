"""The state of one VM or VMI in a word, and the reason why it is not ready in a sentence."""

from __future__ import annotations

from controller.apimachinery.conditions import Condition, find_condition
from controller.kubevirt import vmis, vms
from controller.kubevirt.vm_types import FAILURE, VirtualMachine
from controller.kubevirt.vmi_types import POD_SCHEDULED, SYNCHRONIZED, VirtualMachineInstance
from plugin.views.tables import printable

TERMINATING = "Terminating"


def status_of_vm(vm: VirtualMachine) -> str:
    return TERMINATING if vms.is_deleting(vm) else vms.printable_status_of(vm) or "Pending"


def status_of_vmi(vmi: VirtualMachineInstance) -> str:
    return TERMINATING if vmis.is_deleting(vmi) else vmis.phase_of(vmi) or "Pending"


def problem_of_vm(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> str:
    """Return the reason why the VM is not ready, or "" if the VM is ready, stopped or terminating."""
    if vms.is_deleting(vm) or vms.is_ready(vm) or not vms.is_meant_to_run(vm):
        return ""
    failure = find_condition(vm.status.conditions if vm.status is not None else None, FAILURE)
    if failure is not None and failure.status == "True":
        return _text(failure)
    return (problem_of_vmi(vmi) if vmi is not None else "") or _text(vms.ready_condition(vm))


def problem_of_vmi(vmi: VirtualMachineInstance) -> str:
    """Return the reason why the VMI is not ready, or "" if the VMI is ready, finished or terminating."""
    if vmis.is_deleting(vmi) or vmis.is_final(vmi) or vmis.is_ready(vmi) or vmi.status is None:
        return ""
    for type_ in (SYNCHRONIZED, POD_SCHEDULED):
        condition = find_condition(vmi.status.conditions, type_)
        if condition is not None and condition.status == "False" and condition.message:
            return _text(condition)
    return _text(vmis.ready_condition(vmi))


def _text(condition: Condition | None) -> str:
    return "" if condition is None else printable(condition.message or condition.reason or "")
