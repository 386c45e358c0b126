"""This module simulates the nodes of VMIs. All functions of this module are pure.

If the condition Ready of a node is False or Unknown, the node does not answer. Its VMIs stay in the phase Running and
are not ready, without a reason. After `TOLERATION_S`, Kubernetes deletes their Pods, which stay Terminating. If the
node answers again, its Pods end. If the Node object is deleted, or the node has the taint out-of-service, the Pods
disappear, and the VMIs fail.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from zlib import crc32

from informers.meta import ObjectMeta
from sandbox.launchers.objects import PODS, Node, Pod, is_responsive, is_schedulable
from sandbox.launchers.pods import end_of
from sandbox.step import Delete, Step
from sandbox.vmi_status import state_patch
from sandbox.vmis import Reason, SimulatedVMI, VMIState

UNRESPONSIVE: Final = "NodeUnresponsive"
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
        return Step(write=end_of(vmi, "Failed", now, reason=UNRESPONSIVE))
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
    """Return the node to which the VMI migrates, or "" if no other node is schedulable."""
    others = {name: node for name, node in nodes.items() if name != vmi.node}
    return node_for(vmi.metadata, others)


def node_for(vmi: ObjectMeta, nodes: Mapping[str, Node]) -> str:
    """Return a schedulable node for the VMI, or "" if no node is schedulable.

    All nodes get about the same number of VMIs.
    """
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
