"""This module simulates the nodes of VMIs. All functions of this module are pure.

A node is lost if its Node object was deleted, or if the condition Ready of the node is False or Unknown. The VMIs on a
lost node fail with the reason NodeUnresponsive.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from zlib import crc32

import msgspec

from informers.meta import ObjectMeta
from sandbox.launchers.objects import VMI, Node, is_active, is_responsive, is_schedulable, node_of, patch_of
from sandbox.launchers.pods import final_status
from sandbox.step import Step

UNRESPONSIVE: Final = "NodeUnresponsive"
CAPACITY: Final = {"cpu": "64", "memory": "256Gi", "pods": "1000", "devices.kubevirt.io/kvm": "1k"}


def vmi_step(vmi: VMI, nodes: Mapping[str, Node], now: datetime) -> Step | None:
    """Return the step that lets a VMI on a lost node fail, or None. Without Node objects, no node is lost."""
    node = node_of(vmi)
    if not nodes or not node or not is_active(vmi) or (node in nodes and is_responsive(nodes[node])):
        return None
    status = {**final_status(vmi, "Failed", now), "reason": UNRESPONSIVE}
    return Step(write=patch_of(vmi.metadata, status=status))


def target_for(vmi: VMI, nodes: Mapping[str, Node]) -> str:
    """Return the node to which the VMI migrates, or "" if no other node is schedulable."""
    others = {name: node for name, node in nodes.items() if name != node_of(vmi)}
    return node_for(vmi.metadata, others)


def node_for(vmi: ObjectMeta, nodes: Mapping[str, Node]) -> str:
    """Return a schedulable node for the VMI, or "" if no node is schedulable.

    All nodes get about the same number of VMIs.
    """
    names = sorted(name for name, node in nodes.items() if is_schedulable(node))
    return names[crc32(vmi.uid.encode()) % len(names)] if names else ""


def manifest(name: str) -> bytes:
    """Return the manifest of a Node without a status, because the API server ignores the status in a create request."""
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubevirt.io/schedulable": "true"}
    return _encode({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})


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
    return _encode(
        {
            "status": {
                "conditions": [condition],
                "capacity": CAPACITY,
                "allocatable": CAPACITY,
                "addresses": addresses,
            }
        }
    )


def _encode(document: dict[str, Any]) -> bytes:
    return msgspec.json.encode(document)
