"""What can be said of one VirtualMachineInstance: the words of R3 and R6, each one question."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from controller.apimachinery.conditions import Condition, moment
from controller.kubevirt.vmi_types import VirtualMachineInstance

FINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})


def phase_of(vmi: VirtualMachineInstance) -> str:
    """The phase; "" for one that nobody has looked at yet."""
    return (vmi.status.phase or "") if vmi.status is not None else ""


def node_of(vmi: VirtualMachineInstance) -> str:
    """The node it runs on, or is to run on; "" before it has one."""
    return (vmi.status.node_name or "") if vmi.status is not None else ""


def ready_condition(vmi: VirtualMachineInstance) -> Condition | None:
    if vmi.status is not None and vmi.status.conditions is not None:
        for condition in vmi.status.conditions:
            if condition.type == "Ready":
                return condition
    return None


def is_deleting(vmi: VirtualMachineInstance) -> bool:
    return vmi.metadata.deletion_timestamp is not None


def is_final(vmi: VirtualMachineInstance) -> bool:
    """It has run and will not run again (R3)."""
    return vmi.status is not None and vmi.status.phase in FINAL_PHASES


def is_spent(vmi: VirtualMachineInstance) -> bool:
    """Final or unknown: it counts for nothing, and gives way to a replacement (R3, R7).

    Unknown: nobody can say whether it still runs, or its pod is being taken away under it.
    """
    return is_final(vmi) or _is_lost(vmi)


def is_active(vmi: VirtualMachineInstance) -> bool:
    """Counts towards `status.replicas`, provided that it is owned (R3)."""
    return vmi.metadata.deletion_timestamp is None and not is_spent(vmi)


def is_ready(vmi: VirtualMachineInstance) -> bool:
    condition = ready_condition(vmi)
    return condition is not None and condition.status == "True"


def is_running(vmi: VirtualMachineInstance) -> bool:
    return vmi.status is not None and vmi.status.phase == "Running"


def is_migrating(vmi: VirtualMachineInstance) -> bool:
    """A live migration has begun and neither succeeded nor failed."""
    migration = vmi.status.migration_state if vmi.status is not None else None
    return migration is not None and not migration.completed and not migration.failed


def ready_since(vmi: VirtualMachineInstance) -> datetime | None:
    """Since when it is ready; None while it is not. Without a transition time: since it was created."""
    condition = ready_condition(vmi)
    if condition is None or condition.status != "True":
        return None
    return moment(condition.last_transition_time or vmi.metadata.creation_timestamp)


def unready_since(vmi: VirtualMachineInstance) -> datetime | None:
    """Since when it is not ready; None while it is. One that never was ready: since it was created."""
    condition = ready_condition(vmi)
    if condition is not None and condition.status == "True":
        return None
    return moment((condition and condition.last_transition_time) or vmi.metadata.creation_timestamp)


def _is_lost(vmi: VirtualMachineInstance) -> bool:
    if vmi.status is None:
        return False
    if vmi.status.phase == "Unknown":
        return True
    condition = ready_condition(vmi)
    return condition is not None and condition.status == "False" and condition.reason == "PodTerminating"
