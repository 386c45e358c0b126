import msgspec
import pytest

from controller.kubevirt import vmis
from controller.kubevirt.resources import VMIS
from controller.kubevirt.vmi_types import VirtualMachineInstance
from tests.builders import NOW, vmi

STANDINGS = {
    # name: (vmi, final, unknown, active)
    "running": (vmi(), False, False, True),
    "KubeVirt has not looked at it yet": (VirtualMachineInstance(), False, False, True),
    "pending": (vmi(phase="Pending", ready=None), False, False, True),
    "succeeded": (vmi(phase="Succeeded"), True, False, False),
    "failed": (vmi(phase="Failed"), True, False, False),
    "phase unknown": (vmi(phase="Unknown"), False, True, False),
    "its pod is terminating": (vmi(ready=False, reason="PodTerminating"), False, True, False),
    "final, and terminating": (vmi(phase="Failed", ready=False, reason="PodTerminating"), True, False, False),
    "not ready for another reason": (vmi(ready=False, reason="GuestNotRunning"), False, False, True),
    "ready, whatever the reason says": (vmi(ready=True, reason="PodTerminating"), False, False, True),
    "being deleted": (vmi(deleting=True), False, False, False),
}


@pytest.mark.parametrize(("machine", "final", "unknown", "active"), STANDINGS.values(), ids=STANDINGS)
def test_r3_only_active_vmis_count(machine, final, unknown, active):
    is_spent = vmis.is_spent(machine)
    assert (vmis.is_final(machine), is_spent, vmis.is_active(machine)) == (final, final or unknown, active)


def test_a_vmi_keeps_the_times_of_the_phases_that_are_read():
    names = ("Pending", "Scheduling", "Running", "Succeeded", "Failed", None)
    times = [{"phase": name, "phaseTransitionTimestamp": "2026-08-01T12:00:00Z"} for name in names]
    body = {"status": {"phase": "Failed", "phaseTransitionTimestamps": times}}
    decoded = msgspec.json.decode(msgspec.json.encode(body), type=VirtualMachineInstance)
    assert [each.phase for each in decoded.status.phase_transition_timestamps] == ["Running", "Succeeded", "Failed"]
    assert vmis.entered(decoded, "Running") == NOW
    assert vmis.entered(decoded, "Scheduling") is None


def test_a_vmi_keeps_only_the_conditions_that_are_read():
    types = ("Ready", "LiveMigratable", "HotVCPUChange", "AgentConnected", "Synchronized")
    conditions = [{"type": type_, "status": "True", "message": f"about {type_}"} for type_ in types]
    vmi = VMIS.decode(msgspec.json.encode({"metadata": {"name": "vmi"}, "status": {"conditions": conditions}}))
    assert [(each.type, each.message) for each in vmi.status.conditions] == [
        ("Ready", "about Ready"),
        ("HotVCPUChange", "about HotVCPUChange"),
        ("Synchronized", "about Synchronized"),
    ]
