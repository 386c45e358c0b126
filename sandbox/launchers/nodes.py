"""Simulates the nodes of VMIs, and live migrations between them, as docs/sandbox.md says. This module is pure.

A node whose condition Ready is False or Unknown does not answer. A user creates a migration, or KubeVirt for a VMI that
must leave its node (`status.evacuationNodeName`). Until its end, `status.migrationState` has no `endTimestamp`.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from zlib import crc32

import msgspec

from controller.kubevirt.vmi_types import CPU_CHANGE, MEMORY_CHANGE
from informers.meta import ObjectMeta, labels_of
from sandbox.launchers.pods import (
    MIGRATION_UID,
    MIGRATIONS,
    PODS,
    Fields,
    Migration,
    Node,
    Pod,
    is_responsive,
    is_schedulable,
    new_pod,
    phase_of,
    suffix,
)
from sandbox.step import Change, Delete, Patch, Step, creation, patch_of, without
from sandbox.vmi_status import state_patch
from sandbox.vmis import FINAL_PHASES, NODE_LABEL, VMIS, CpuTopology, Memory, Reason, SimulatedVMI, VMIState

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
TOLERATION_S: Final = 300.0
"""The time for which Pods tolerate an unreachable node, by default."""

CAPACITY: Final = {"cpu": "64", "memory": "256Gi", "pods": "1000", "devices.kubevirt.io/kvm": "1k"}


def vmi_step(vmi: SimulatedVMI, nodes: Mapping[str, Node], pods: Iterable[Pod], now: datetime) -> Step | None:
    """Return the step of a VMI whose node does not answer, or None. Without Node objects, every node answers."""
    if not nodes or not vmi.node or vmi.is_final or answers(vmi.node, nodes):
        return None
    ending = [pod for pod in pods if pod.metadata.deletion_timestamp is not None]
    node = nodes.get(vmi.node)
    if node is None or (ending and any(taint.get("key") == OUT_OF_SERVICE for taint in node.spec.taints or ())):
        # virt-controller sees that the Pod is gone before its own node controller looks for lost VMIs.
        return Step(write=state_patch(VMIState("Failed", Reason.POD_NOT_EXISTS, vmi.problem), vmi, now=now))
    if vmi.phase != "Running":
        return Step(after_s=TOLERATION_S)
    state = VMIState(vmi.phase, Reason.POD_TERMINATING if ending else Reason.NO_ANSWER, vmi.problem)
    if vmi.state != state:
        return Step(write=state_patch(state, vmi, now=now))
    if ending:
        return Step()
    ready = vmi.condition("Ready")
    since = (ready and ready.last_transition_time) or now
    left_s = TOLERATION_S - (now - since).total_seconds()
    if left_s > 0:
        return Step(after_s=left_s)
    return Step(effects=tuple(Delete(PODS, each.metadata.name, each.metadata.uid) for each in pods))


def pod_waits(pod: Pod, nodes: Mapping[str, Node]) -> bool:
    """Return True if the Pod stays Terminating until its VMI has failed, because its node does not answer."""
    return bool(nodes) and bool(pod.spec.node_name) and not answers(pod.spec.node_name or "", nodes)


def answers(name: str, nodes: Mapping[str, Node]) -> bool:
    return name in nodes and is_responsive(nodes[name])


def target_for(vmi: SimulatedVMI, nodes: Mapping[str, Node]) -> str:
    others = {name: node for name, node in nodes.items() if name != vmi.node}
    return node_for(vmi.metadata, others)


def node_for(vmi: ObjectMeta, nodes: Mapping[str, Node]) -> str:
    """Return a schedulable node for the VMI, or "". All nodes get about the same number of VMIs."""
    names = sorted(name for name, node in nodes.items() if is_schedulable(node))
    return names[crc32(vmi.uid.encode()) % len(names)] if names else ""


def new_node(name: str, now: datetime) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubevirt.io/schedulable": "true"}
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    addresses = [{"type": "Hostname", "address": name}]
    status = {"conditions": [condition], "capacity": CAPACITY, "allocatable": CAPACITY, "addresses": addresses}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


EVACUATION: Final = "kubevirt.io/evacuationMigration"
"""The annotation of a migration whose purpose is to empty a node. The value is the node."""

FINALIZER: Final = "kubevirt.io/migrationJobFinalize"
DURATION_S: Final = 1.0
Pods = Iterable[Pod]


def evacuation_step(vmi: SimulatedVMI) -> Step | None:
    wanted = vmi.status.evacuation_node_name
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
    meta, phase = migration.metadata, phase_of(migration)
    others = [each for each in meta.finalizers or () if each != FINALIZER]
    is_held, is_deleting = FINALIZER in (meta.finalizers or ()), meta.deletion_timestamp is not None
    if phase in FINAL_PHASES:
        return Step(write=patch_of(meta, versioned=True, metadata={"finalizers": others})) if is_held else Step()
    if vmi is None and not is_deleting:
        return Step(effects=(Delete(MIGRATIONS, meta.name, meta.uid),))
    if not phase and not is_held and not is_deleting:
        mark = {"finalizers": [*others, FINALIZER], "labels": {"kubevirt.io/vmi-name": migration.spec.vmi_name}}
        return Step(write=patch_of(meta, versioned=True, metadata=mark))
    if vmi is None or not vmi.is_active or is_deleting:
        return Step(effects=_abortion(meta.uid, vmi, now), write=_phase(migration, "Failed", now))
    state, uid = vmi.migration, meta.uid
    if state.get("migrationUid") == uid:
        return _run(migration, vmi, state, now)
    if vmi.is_migrating or vmi.has("LiveMigratable", "False"):
        return Step(write=_phase(migration, "Failed", now))
    if (vmi.migration and not vmi.migration.get("completed")) or vmi.phase != "Running":
        return Step(write=_phase(migration, "Pending", now)) if not phase else Step()
    targets = [pod for pod in pods if labels_of(pod.metadata).get(MIGRATION_UID) == uid]
    if not targets:
        node = target_for(vmi, nodes)
        if node:
            pod = new_pod(vmi, node=node, migration_uid=uid)
            return Step(effects=(pod,), write=_phase(migration, "Scheduling", now))
        return Step(write=_phase(migration, "Pending", now)) if not phase else Step()
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
        "failed": None,
    }
    change = patch_of(vmi.metadata, status={"migrationState": begun})
    return Step(effects=(Change(VMIS, vmi.metadata.name, change),), write=_phase(migration, "Running", now))


def _abortion(uid: str, vmi: SimulatedVMI | None, now: datetime) -> tuple[Change, ...]:
    """Return the end of the migration in the status of its VMI, if it runs."""
    if vmi is None or vmi.migration.get("migrationUid") != uid or not vmi.is_migrating:
        return ()
    ended = {"endTimestamp": now, "failed": True}
    return (Change(VMIS, vmi.metadata.name, patch_of(vmi.metadata, status={"migrationState": ended})),)


def _run(migration: Migration, vmi: SimulatedVMI, state: Mapping[str, Any], now: datetime) -> Step:
    """Return the next step of a migration that has begun. As in KubeVirt, it ends in two writes of the VMI.

    First the guest runs on the target. Then the target's virt-handler applies a hot-plug, and completes the migration.
    """
    if state.get("completed"):
        return Step(write=_phase(migration, "Succeeded", now))
    if state.get("endTimestamp"):
        plugged = hotplug_result(vmi)
        # A merge patch replaces all conditions, so the API server rejects the patch if the VMI has changed.
        status = {"migrationState": {"completed": True}, **plugged}
        change = patch_of(vmi.metadata, versioned=bool(plugged), status=status)
        return Step(effects=(Change(VMIS, vmi.metadata.name, change),))
    started = msgspec.convert(state["startTimestamp"], datetime, strict=False)
    left_s = (started + timedelta(seconds=DURATION_S) - now).total_seconds()
    if left_s > 0:
        return Step(after_s=left_s)
    target = state["targetNode"]
    change = patch_of(
        vmi.metadata,
        metadata={"labels": {NODE_LABEL: target}},
        status={"nodeName": target, "evacuationNodeName": None, "migrationState": {"endTimestamp": now}},
    )
    return Step(effects=(Change(VMIS, vmi.metadata.name, change),))


def hotplug_result(vmi: SimulatedVMI) -> Fields:
    """Return the status fields that change when a migration ends and applies a hot-plug, or {}."""
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
        "phaseTransitionTimestamps": [*(migration.status.phase_transition_timestamps or ()), transition],
    }
    return patch_of(migration.metadata, "status", status=status)
