"""This module simulates live migrations. All functions of this module are pure.

A migration is a VirtualMachineInstanceMigration. A user creates it, or KubeVirt creates it for a VMI that must leave
its node (`status.evacuationNodeName`). The migration creates a second Pod on another node. While the migration runs,
`status.migrationState` of the VMI has no `endTimestamp`. The VMI keeps its name and its UID. A finished migration ends
a hot-plug of CPUs or memory.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from informers.meta import labels_of
from sandbox.conditions import without
from sandbox.launchers.nodes import target_for
from sandbox.launchers.objects import MIGRATION_UID, MIGRATIONS, Fields, Migration, Node, Pod, phase_of, status_of
from sandbox.launchers.pods import new_pod, suffix
from sandbox.step import Change, Patch, Step, creation, patch_of
from sandbox.vmis import FINAL_PHASES, NODE_LABEL, VMIS, CpuTopology, Memory, SimulatedVMI

EVACUATION: Final = "kubevirt.io/evacuationMigration"
"""The annotation of a migration whose purpose is to empty a node. The value is the node."""

CPU_CHANGE: Final = "HotVCPUChange"
MEMORY_CHANGE: Final = "HotMemoryChange"

DURATION_S: Final = 1.0
Pods = Iterable[Pod]


def evacuation_step(vmi: SimulatedVMI) -> Step | None:
    wanted = vmi.told.evacuation_node_name
    if not wanted or wanted != vmi.node or vmi.is_migrating or not vmi.is_active:
        return None
    last = str(vmi.migration.get("endTimestamp") or "")
    name = f"kubevirt-evacuation-{suffix(vmi.metadata.uid + wanted + last)}"
    body = creation(
        MIGRATIONS, {"name": name, "annotations": {EVACUATION: wanted}}, spec={"vmiName": vmi.metadata.name}
    )
    return Step(effects=(body,))


def migration_step(
    migration: Migration, vmi: SimulatedVMI | None, pods: Pods, nodes: Mapping[str, Node], now: datetime
) -> Step:
    """Return the next step for a migration. `vmi` is the VMI of the migration, and `pods` are the VMI's Pods."""
    if phase_of(migration) in FINAL_PHASES:
        return Step()
    if vmi is None or not vmi.is_active or migration.metadata.deletion_timestamp is not None:
        return Step(write=_phase(migration, "Failed", now))
    state, uid = vmi.migration, migration.metadata.uid
    if state.get("migrationUid") == uid:
        return _run(migration, vmi, state, now)
    if vmi.is_migrating or vmi.phase != "Running":
        return Step(write=_phase(migration, "Pending", now)) if not phase_of(migration) else Step()
    if vmi.has("LiveMigratable", "False"):
        return Step(write=_phase(migration, "Failed", now))
    targets = [pod for pod in pods if labels_of(pod.metadata).get(MIGRATION_UID) == uid]
    if not targets:
        node = target_for(vmi, nodes)
        if node:
            pod = new_pod(vmi, node=node, migration_uid=uid)
            return Step(effects=(pod,), write=_phase(migration, "Scheduling", now))
        return Step(write=_phase(migration, "Pending", now)) if not phase_of(migration) else Step()
    [target] = targets
    if phase_of(target) != "Running":
        return Step()
    source = next((pod.metadata.name for pod in pods if pod.spec.node_name == vmi.node), "")
    begun = {
        "migrationUid": uid,
        "mode": "PreCopy",
        "sourceNode": vmi.node,
        "sourcePod": source,
        "targetNode": target.spec.node_name,
        "targetPod": target.metadata.name,
        "startTimestamp": now,
        # A JSON merge patch keeps the fields of the last migration, except those that are null.
        "endTimestamp": None,
        "completed": None,
    }
    change = patch_of(vmi.metadata, status={"migrationState": begun})
    return Step(effects=(Change(VMIS, vmi.metadata.name, change),), write=_phase(migration, "Running", now))


def _run(migration: Migration, vmi: SimulatedVMI, state: Mapping[str, Any], now: datetime) -> Step:
    if state.get("endTimestamp"):
        return Step(write=_phase(migration, "Succeeded", now))
    started = msgspec.convert(state["startTimestamp"], datetime, strict=False)
    left_s = (started + timedelta(seconds=DURATION_S) - now).total_seconds()
    if left_s > 0:
        return Step(after_s=left_s)
    target = state["targetNode"]
    ended = {"endTimestamp": now, "completed": True}
    plugged = hotplug_result(vmi)
    # A merge patch replaces all conditions, so the API server rejects the patch if the VMI has changed.
    change = patch_of(
        vmi.metadata,
        versioned=bool(plugged),
        metadata={"labels": {NODE_LABEL: target}},
        status={"nodeName": target, "evacuationNodeName": None, "migrationState": ended, **plugged},
    )
    return Step(effects=(Change(VMIS, vmi.metadata.name, change),), write=_phase(migration, "Succeeded", now))


def hotplug_result(vmi: SimulatedVMI) -> Fields:
    """Return the status fields that change when a migration ends and applies a hot-plug.

    The result is {} if no hot-plug is in progress.
    """
    has_cpus, has_memory = vmi.condition(CPU_CHANGE), vmi.condition(MEMORY_CHANGE)
    if not has_cpus and not has_memory:
        return {}
    fields: Fields = {"conditions": without(vmi.conditions, CPU_CHANGE, MEMORY_CHANGE)}
    if has_cpus:
        fields["currentCPUTopology"] = CpuTopology.of(vmi.domain.cpu)
    memory = vmi.domain.memory
    if has_memory and memory is not None and memory.guest is not None:
        fields["memory"] = Memory(guest_current=str(memory.guest), guest_requested=str(memory.guest))
    return fields


def _phase(migration: Migration, phase: str, now: datetime) -> Patch:
    transition = {"phase": phase, "phaseTransitionTimestamp": now}
    status = {
        "phase": phase,
        "phaseTransitionTimestamps": [*(status_of(migration).phase_transition_timestamps or ()), transition],
    }
    return patch_of(migration.metadata, "status", status=status)
