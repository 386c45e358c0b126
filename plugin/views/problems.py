"""The state of one VM or VMI in a word, and the reason why it is not ready in a sentence."""

from controller.kubevirt import vmis, vms
from controller.kubevirt.problems import cause_of_vmi, cause_text_of_vm, text_of
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance

TERMINATING = "Terminating"


def status_of_vm(vm: VirtualMachine) -> str:
    return TERMINATING if vms.is_deleting(vm) else vms.printable_status_of(vm) or "Pending"


def status_of_vmi(vmi: VirtualMachineInstance) -> str:
    return TERMINATING if vmis.is_deleting(vmi) else vmis.phase_of(vmi) or "Pending"


def problem_of_vm(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> str:
    """Return the reason why the VM is not ready, or "" if the VM is ready, stopped or terminating."""
    if vms.is_deleting(vm) or vms.is_ready(vm) or not vms.is_meant_to_run(vm):
        return ""
    return cause_text_of_vm(vm, vmi)


def problem_of_vmi(vmi: VirtualMachineInstance) -> str:
    """Return the reason why the VMI is not ready, or "" if the VMI is ready, finished or terminating."""
    return text_of(cause_of_vmi(vmi))
