"""This module simulates the nodes of VMIs. All functions of this module are pure.

A node is lost if its Node object was deleted, or if the condition Ready of the node is False or Unknown. The VMIs on a
lost node fail with the reason NodeUnresponsive.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final
from zlib import crc32

import msgspec

from informers.meta import ObjectMeta
from sandbox.launchers.objects import NODES, Node, is_responsive, is_schedulable
from sandbox.launchers.pods import end_of
from sandbox.step import Create, Step, creation
from sandbox.vmis import SimulatedVMI

UNRESPONSIVE: Final = "NodeUnresponsive"
CAPACITY: Final = {"cpu": "64", "memory": "256Gi", "pods": "1000", "devices.kubevirt.io/kvm": "1k"}


def vmi_step(vmi: SimulatedVMI, nodes: Mapping[str, Node], now: datetime) -> Step | None:
    """Return the step that lets a VMI on a lost node fail, or None. Without Node objects, no node is lost."""
    if not nodes or not vmi.node or not vmi.is_active or (vmi.node in nodes and is_responsive(nodes[vmi.node])):
        return None
    return Step(write=end_of(vmi, "Failed", now, reason=UNRESPONSIVE))


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


def new_node(name: str) -> Create:
    """Return the creation of a Node without a status, because the API server ignores the status in this request."""
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubevirt.io/schedulable": "true"}
    return creation(NODES, {"name": name, "labels": labels})


def status(name: str, now: datetime) -> bytes:
    """Return the merge patch with the status that a kubelet writes."""
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
    return msgspec.json.encode({"status": status})
