"""This module simulates live migrations. All functions of this module are pure.

A migration is a VirtualMachineInstanceMigration. A user creates it, or KubeVirt creates it for a VMI that must leave
its node (`status.evacuationNodeName`). The migration creates a second Pod on another node. While the migration runs,
`status.migrationState` of the VMI has no `endTimestamp`. The VMI keeps its name and its UID. A finished migration ends
a hot-plug of CPUs or memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from informers.meta import labels_of
from sandbox.launchers.nodes import target_for
from sandbox.launchers.objects import (
    FINAL,
    MIGRATION_UID,
    MIGRATIONS,
    NODE_NAME,
    PODS,
    VMI,
    VMIS,
    Fields,
    Migration,
    Node,
    Pod,
    condition_of,
    is_active,
    is_migrating,
    migration_of,
    node_of,
    patch_of,
    phase_of,
)
from sandbox.launchers.pods import manifest, suffix
from sandbox.step import Change, Create, Patch, Step

EVACUATION: Final = "kubevirt.io/evacuationMigration"
"""The annotation of a migration whose purpose is to empty a node. The value is the node."""

CPU_CHANGE: Final = "HotVCPUChange"
MEMORY_CHANGE: Final = "HotMemoryChange"

DURATION_S: Final = 1.0
"""The duration of a migration in seconds."""

Pods = Iterable[Pod]


def evacuation_step(vmi: VMI) -> Step | None:
    """Return the step that creates a migration for a VMI that must leave its node, or None."""
    wanted = vmi.status.evacuation_node_name if vmi.status is not None else None
    if not wanted or wanted != node_of(vmi) or is_migrating(vmi) or not is_active(vmi):
        return None
    last = str(migration_of(vmi).get("endTimestamp") or "")
    body = {
        "apiVersion": MIGRATIONS.api_version,
        "kind": MIGRATIONS.kind,
        "metadata": {
            "name": f"kubevirt-evacuation-{suffix(vmi.metadata.uid + wanted + last)}",
            "annotations": {EVACUATION: wanted},
        },
        "spec": {"vmiName": vmi.metadata.name},
    }
    return Step(effects=(Create(MIGRATIONS, msgspec.json.encode(body)),))


def migration_step(migration: Migration, vmi: VMI | None, pods: Pods, nodes: Mapping[str, Node], now: datetime) -> Step:
    """Return the next step for a migration. `vmi` is the VMI of the migration, and `pods` are the VMI's Pods."""
    if phase_of(migration) in FINAL:
        return Step()
    if vmi is None or not is_active(vmi) or migration.metadata.deletion_timestamp is not None:
        return Step(write=_phase(migration, "Failed", now))
    state, uid = migration_of(vmi), migration.metadata.uid
    if state.get("migrationUid") == uid:
        return _run(migration, vmi, state, now)
    if is_migrating(vmi) or phase_of(vmi) != "Running":
        return Step(write=_phase(migration, "Pending", now)) if not phase_of(migration) else Step()
    if condition_of(vmi, "LiveMigratable") == "False":
        return Step(write=_phase(migration, "Failed", now))
    targets = [pod for pod in pods if labels_of(pod.metadata).get(MIGRATION_UID) == uid]
    if not targets:
        node = target_for(vmi, nodes)
        if node:
            pod = Create(PODS, manifest(vmi, node=node, migration_uid=uid))
            return Step(effects=(pod,), write=_phase(migration, "Scheduling", now))
        return Step(write=_phase(migration, "Pending", now)) if not phase_of(migration) else Step()
    [target] = targets
    if phase_of(target) != "Running":
        return Step()
    source = next((pod.metadata.name for pod in pods if pod.spec.node_name == node_of(vmi)), "")
    begun = {
        "migrationUid": uid,
        "mode": "PreCopy",
        "sourceNode": node_of(vmi),
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


def _run(migration: Migration, vmi: VMI, state: Fields, now: datetime) -> Step:
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
    version = {"resourceVersion": vmi.metadata.resource_version} if plugged else {}
    change = patch_of(
        vmi.metadata,
        metadata={"labels": {NODE_NAME: target}, **version},
        status={"nodeName": target, "evacuationNodeName": None, "migrationState": ended, **plugged},
    )
    return Step(effects=(Change(VMIS, vmi.metadata.name, change),), write=_phase(migration, "Succeeded", now))


def hotplug_result(vmi: VMI) -> Fields:
    """Return the status fields that change when a migration ends and applies a hot-plug.

    The result is {} if no hot-plug is in progress.
    """
    has_cpus, has_memory = condition_of(vmi, CPU_CHANGE), condition_of(vmi, MEMORY_CHANGE)
    if vmi.status is None or not (has_cpus or has_memory):
        return {}
    conditions = [each for each in vmi.status.conditions or () if each["type"] not in (CPU_CHANGE, MEMORY_CHANGE)]
    fields: Fields = {"conditions": conditions}
    domain = vmi.spec.domain or {}
    if has_cpus:
        cpu = domain.get("cpu") or {}
        fields["currentCPUTopology"] = {name: cpu.get(name) or 1 for name in ("cores", "sockets", "threads")}
    guest = (domain.get("memory") or {}).get("guest")
    if has_memory and guest is not None:
        fields["memory"] = {"guestCurrent": str(guest), "guestRequested": str(guest)}
    return fields


def _phase(migration: Migration, phase: str, now: datetime) -> Patch:
    history: tuple[Any, ...] = ()
    if migration.status is not None:
        history = migration.status.phase_transition_timestamps or ()
    transition = {"phase": phase, "phaseTransitionTimestamp": now}
    status = {"phase": phase, "phaseTransitionTimestamps": [*history, transition]}
    return patch_of(migration.metadata, "status", status=status)
