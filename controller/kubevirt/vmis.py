"""Functions that read the state of one VirtualMachineInstance (R3, R6)."""

from datetime import datetime
from typing import Final

from controller.apimachinery.conditions import Condition, find_condition, find_true, with_timezone
from controller.kubevirt.vmi_types import PAUSED, READY, VirtualMachineInstance

FINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})

POD_TERMINATING: Final = "PodTerminating"
"""The reason of the condition `Ready` of a VMI whose Pod is being deleted, or has ended."""

EARLY_PHASES: Final = frozenset({"", "Pending", "Scheduling", "Scheduled"})
"""The phases before Running. A VMI does not return to these phases."""


def phase_of(vmi: VirtualMachineInstance) -> str:
    return (vmi.status.phase or "") if vmi.status is not None else ""


def node_of(vmi: VirtualMachineInstance) -> str:
    return (vmi.status.node_name or "") if vmi.status is not None else ""


def ready_condition(vmi: VirtualMachineInstance) -> Condition | None:
    return find_condition(vmi.status.conditions if vmi.status is not None else None, READY)


def is_deleting(vmi: VirtualMachineInstance) -> bool:
    return vmi.metadata.deletion_timestamp is not None


def terminating_since(vmi: VirtualMachineInstance) -> datetime | None:
    return with_timezone(vmi.metadata.deletion_timestamp)


def must_leave_node(vmi: VirtualMachineInstance) -> bool:
    """Return True if an eviction asks the VMI to migrate."""
    return vmi.status is not None and bool(vmi.status.evacuation_node_name)


def is_final(vmi: VirtualMachineInstance) -> bool:
    """Return True if the phase is Succeeded or Failed (R3). Such a VMI has finished and will not run again."""
    return vmi.status is not None and vmi.status.phase in FINAL_PHASES


def is_spent(vmi: VirtualMachineInstance) -> bool:
    """Return True if the VMI is to be replaced: it has finished, is unknown, or its Pod is terminating (R3, R7)."""
    return is_final(vmi) or phase_of(vmi) == "Unknown" or has_terminating_pod(vmi)


def is_active(vmi: VirtualMachineInstance) -> bool:
    """Return True if the VMI counts in `status.replicas`: it is neither spent nor being deleted (R3)."""
    return vmi.metadata.deletion_timestamp is None and not is_spent(vmi)


def has_terminating_pod(vmi: VirtualMachineInstance) -> bool:
    condition = ready_condition(vmi)
    return condition is not None and condition.status == "False" and condition.reason == POD_TERMINATING


def was_ready(vmi: VirtualMachineInstance) -> bool:
    """Return True if a VMI that has ended was ready until then, as far as its times tell."""
    started, unready = entered(vmi, "Running"), unready_since(vmi)
    return started is not None and unready is not None and started <= unready


def was_evicted(vmi: VirtualMachineInstance) -> bool:
    """Return True if the Pod is terminating for another reason than the end of the guest: it was so before the end."""
    if not has_terminating_pod(vmi) or not is_final(vmi):
        return has_terminating_pod(vmi)
    started, unready, ended = entered(vmi, "Running"), unready_since(vmi), entered(vmi, phase_of(vmi))
    if started is None or unready is None or ended is None:
        return False
    return started <= unready < ended


def is_out_of_reach(vmi: VirtualMachineInstance) -> bool:
    """Return True if the VMI runs, and its kubelet does not report: only then, `Ready` is False without a reason."""
    condition = ready_condition(vmi)
    return is_running(vmi) and condition is not None and condition.status == "False" and not condition.reason


def is_ready(vmi: VirtualMachineInstance) -> bool:
    condition = ready_condition(vmi)
    return condition is not None and condition.status == "True"


def is_running(vmi: VirtualMachineInstance) -> bool:
    return vmi.status is not None and vmi.status.phase == "Running"


def entered(vmi: VirtualMachineInstance, phase: str) -> datetime | None:
    """Return the time when the VMI entered this phase ("Running" or a final phase), or None if the time is unknown."""
    for transition in (vmi.status.phase_transition_timestamps or ()) if vmi.status is not None else ():
        if transition.phase == phase:
            return with_timezone(transition.phase_transition_timestamp)
    return None


def is_migrating(vmi: VirtualMachineInstance) -> bool:
    found = vmi.status.migration_state if vmi.status is not None else None
    return found is not None and not found.completed and not found.failed and found.end_timestamp is None


def paused_condition(vmi: VirtualMachineInstance) -> Condition | None:
    return find_true(vmi.status.conditions, PAUSED) if vmi.status is not None else None


def is_paused(vmi: VirtualMachineInstance) -> bool:
    return paused_condition(vmi) is not None


def ready_since(vmi: VirtualMachineInstance) -> datetime | None:
    """If the condition `Ready` has no transition time, return the creation time of the VMI."""
    condition = ready_condition(vmi)
    if condition is None or condition.status != "True":
        return None
    return with_timezone(condition.last_transition_time or vmi.metadata.creation_timestamp)


def was_never_ready(vmi: VirtualMachineInstance) -> bool:
    """Return True if the phase proves that the VMI was never ready. KubeVirt reports only running VMIs as ready."""
    return not vmi.undecodable and phase_of(vmi) in EARLY_PHASES


def became_ready_at(vmi: VirtualMachineInstance) -> datetime | None:
    """Return when the running VMI became ready, or None. KubeVirt copies the Pod's time, which can be earlier."""
    condition = ready_condition(vmi)
    if condition is None or condition.status != "True":
        return None
    return max(filter(None, (with_timezone(condition.last_transition_time), entered(vmi, "Running"))), default=None)


def unready_since(vmi: VirtualMachineInstance) -> datetime | None:
    """Return when the VMI became unready, by default its creation, or None if it is ready."""
    condition = ready_condition(vmi)
    if condition is not None and condition.status == "True":
        return None
    return with_timezone((condition and condition.last_transition_time) or vmi.metadata.creation_timestamp)
