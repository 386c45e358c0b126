"""Simulates the virt-launcher Pod of each VMI. In KubeVirt, the VMI follows the Pod. This module is pure."""

import zlib
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from controller.apimachinery.conditions import Condition, find_condition
from controller.apimachinery.owner_references import controller_reference
from informers.meta import ObjectMeta, annotations_of, controller_of, labels_of
from informers.resource import Resource
from sandbox.step import Change, Create, Delete, Effect, Step, creation, patch_of
from sandbox.vmi_status import state_patch
from sandbox.vmis import FINAL_PHASES, NODE_LABEL, VMIS, CpuTopology, Reason, SimulatedVMI, VMIState, final_phase

CREATED_BY: Final = "kubevirt.io/created-by"
MIGRATION_UID: Final = "kubevirt.io/migrationJobUID"
Fields = dict[str, Any]


class PodSpec(Struct, frozen=True, rename="camel"):
    node_name: str | None = None


class NodeSpec(Struct, frozen=True):
    unschedulable: bool = False
    taints: tuple[Fields, ...] | None = None


class MigrationSpec(Struct, frozen=True, rename="camel"):
    vmi_name: str = ""


class Status(Struct, frozen=True, rename="camel"):
    phase: str | None = None
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] | None = None
    phase_transition_timestamps: tuple[Fields, ...] | None = None


class Pod(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: Status = Status()


class Node(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: Status = Status()


class Migration(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: MigrationSpec = MigrationSpec()
    status: Status = Status()


PODS: Final = Resource(Pod, group="", version="v1", plural="pods", kind="Pod")
NODES: Final = Resource(Node, group="", version="v1", plural="nodes", kind="Node", namespaced=False)
MIGRATIONS: Final = Resource(
    Migration,
    group="kubevirt.io",
    version="v1",
    plural="virtualmachineinstancemigrations",
    kind="VirtualMachineInstanceMigration",
)


def phase_of(obj: Pod | Migration) -> str:
    return obj.status.phase or ""


def condition_of(obj: Pod | Node, type_: str) -> str:
    condition = find_condition(obj.status.conditions, type_)
    return condition.status if condition is not None else ""


def uid_of_vmi(pod: Pod) -> str:
    """Return the UID of the VMI that controls the Pod, or "" if the Pod belongs to no VMI."""
    owner = controller_of(pod.metadata)
    return owner.uid if owner is not None and owner.kind == VMIS.kind else ""


def is_schedulable(node: Node) -> bool:
    return not node.spec.unschedulable and is_responsive(node)


def is_responsive(node: Node) -> bool:
    """Return True if the node's condition Ready is True, or is missing because the node is new."""
    return condition_of(node, "Ready") in ("True", "")


STARTED: Final = frozenset({"Scheduled", "Running", "Unknown"})
"""The phases of a VMI in which the containers of its Pod run."""

CPU_OF_ONE_VCPU_M: Final = 100
"""The CPU request in millicores for each virtual CPU, from KubeVirt's default `cpuAllocationRatio` of 10."""

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def vmi_step(vmi: SimulatedVMI, pods: tuple[Pod, ...]) -> Step:
    """Return the step that creates a missing Pod for the VMI or writes its `pods` to `status.activePods`."""
    if not vmi.is_active or vmi.phase in ("", "Pending"):
        return Step()
    if not pods:
        return Step(effects=(new_pod(vmi, node=vmi.node),))
    told = vmi.status.active_pods or {}
    active = {pod.metadata.uid: pod.spec.node_name or "" for pod in pods}
    # A JSON merge patch keeps the fields that it does not name, except those that are null.
    changes = {uid: active.get(uid) for uid in (*told, *active) if told.get(uid) != active.get(uid)}
    return Step(write=patch_of(vmi.metadata, status={"activePods": changes})) if changes else Step()


def pod_step(pod: Pod, vmi: SimulatedVMI | None, now: datetime) -> Step:
    meta = pod.metadata
    if vmi is None or meta.deletion_timestamp is not None:
        ended: tuple[Effect, ...] = ()
        if vmi is not None and vmi.is_active and not _is_target(pod, vmi) and not _is_source_of_past(pod, vmi):
            state = VMIState(final_phase(vmi.phase), Reason.POD_TERMINATING, vmi.problem)
            ended = (Change(VMIS, vmi.metadata.name, state_patch(state, vmi, now=now)),)
        # The Pod is deleted without a grace period, because no kubelet reports the end of the containers.
        return Step(effects=(*ended, Delete(PODS, meta.name, meta.uid, grace_s=0)))
    if vmi.node and not pod.spec.node_name and not _is_target(pod, vmi):
        return Step(effects=(_binding(pod, vmi.node),))
    wanted = _status(pod, vmi, now)
    return Step(write=patch_of(meta, "status", status=wanted)) if wanted is not None else Step()


def new_pod(vmi: SimulatedVMI, *, node: str, migration_uid: str = "") -> Create:
    """Return the creation of a virt-launcher Pod, for the target of the migration `migration_uid` if there is one."""
    meta = vmi.metadata
    labels = {name: value for name, value in labels_of(meta).items() if name != NODE_LABEL}
    labels |= {"kubevirt.io": "virt-launcher", CREATED_BY: meta.uid, "vm.kubevirt.io/name": meta.name}
    annotations = {name: value for name, value in annotations_of(meta).items() if name != _LAST_APPLIED}
    annotations |= {"kubevirt.io/domain": meta.name, "kubectl.kubernetes.io/default-container": "compute"}
    if migration_uid:
        labels[MIGRATION_UID] = migration_uid
    container = {"name": "compute", "image": "virt-launcher", "resources": {"requests": requests_of(vmi)}}
    spec: Fields = {
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "hostname": vmi.spec.hostname or meta.name,
        "subdomain": vmi.spec.subdomain or "",
        "containers": [container],
        "readinessGates": [{"conditionType": "kubevirt.io/virtual-machine-unpaused"}],
    }
    if node:
        spec["nodeName"] = node
    metadata = {
        "name": f"virt-launcher-{meta.name}-{suffix(meta.uid + migration_uid)}",
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [controller_reference(VMIS, meta)],
    }
    return creation(PODS, metadata, spec=spec)


def requests_of(vmi: SimulatedVMI) -> dict[str, Any]:
    """Return the container's resource requests, without the memory of a real virt-launcher itself."""
    resources, memory, cpu = vmi.domain.resources, vmi.domain.memory, CpuTopology.of(vmi.domain.cpu)
    requests = dict((resources and resources.requests) or {})
    requests.setdefault("cpu", f"{cpu.cores * cpu.sockets * cpu.threads * CPU_OF_ONE_VCPU_M}m")
    if memory is not None and memory.guest is not None:
        requests.setdefault("memory", memory.guest)
    return requests


def suffix(text: str) -> str:
    """Return five characters that depend only on the text. Real KubeVirt uses random characters."""
    return f"{zlib.crc32(text.encode()):08x}"[:5]


def _status(pod: Pod, vmi: SimulatedVMI, now: datetime) -> Fields | None:
    phase, ready = _phase(pod, vmi), "False"
    if phase == "Running" and vmi.has("Ready"):
        ready = "True"
    is_scheduled = "True" if pod.spec.node_name else "False"
    is_paused = vmi.has("Paused")
    present = [condition_of(pod, type_) for type_ in ("Ready", "PodScheduled")]
    if (phase_of(pod), *present) == (phase, ready, is_scheduled):
        return None
    running = "True" if phase == "Running" else "False"
    conditions = {
        "PodScheduled": is_scheduled,
        "Initialized": is_scheduled,
        "ContainersReady": running if is_paused else ready,
        "Ready": ready,
        "kubevirt.io/virtual-machine-unpaused": "False" if is_paused else running,
    }
    status: Fields = {
        "phase": phase,
        "conditions": [
            {"type": type_, "status": value, "lastTransitionTime": now} for type_, value in conditions.items()
        ],
    }
    if phase == "Running":
        status["startTime"] = pod.status.start_time or now
        address = next((each.get("ipAddress") for each in vmi.status.interfaces or ()), None)
        if address:
            status |= {"podIP": address, "podIPs": [{"ip": address}]}
    return status


def _phase(pod: Pod, vmi: SimulatedVMI) -> str:
    phase = vmi.phase
    if phase in FINAL_PHASES:
        return phase
    if phase_of(pod) in FINAL_PHASES:
        return phase_of(pod)
    if vmi.migration.get("failed") and vmi.migration.get("targetPod") == pod.metadata.name:
        return "Failed"
    if _is_target(pod, vmi):
        return "Running" if pod.spec.node_name else "Pending"
    if _is_source_of_past(pod, vmi):
        return "Succeeded"
    return "Running" if phase in STARTED and pod.spec.node_name else "Pending"


def _is_target(pod: Pod, vmi: SimulatedVMI) -> bool:
    migration = labels_of(pod.metadata).get(MIGRATION_UID)
    state = vmi.migration
    return bool(migration) and (state.get("migrationUid") != migration or not state.get("endTimestamp"))


def _is_source_of_past(pod: Pod, vmi: SimulatedVMI) -> bool:
    state = vmi.migration
    return bool(state.get("endTimestamp")) and not state.get("failed") and state.get("targetPod") != pod.metadata.name


def _binding(pod: Pod, node: str) -> Create:
    resource = Resource(Pod, group="", version="v1", plural=f"pods/{pod.metadata.name}/binding", kind="Binding")
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return creation(resource, {"name": pod.metadata.name}, target=target)
