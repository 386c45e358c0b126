"""This module defines the fields of VMIs, Pods, Nodes and migrations that the simulation of virt-launcher reads."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from informers.meta import ObjectMeta, controller_of
from informers.resource import Resource
from sandbox.step import Patch

CREATED_BY: Final = "kubevirt.io/created-by"
"""The label on a Pod of a VMI. Its value is the UID of the VMI."""

MIGRATION_UID: Final = "kubevirt.io/migrationJobUID"
"""The label on a migration's target Pod. Its value is the UID of the migration."""

NODE_NAME: Final = "kubevirt.io/nodeName"
FINAL: Final = frozenset({"Succeeded", "Failed"})

Fields = dict[str, Any]


class VMISpec(Struct, frozen=True, rename="camel"):
    domain: Mapping[str, Any] | None = None
    eviction_strategy: str | None = None


class VMIStatus(Struct, frozen=True, rename="camel"):
    phase: str | None = None
    node_name: str | None = None
    reason: str | None = None
    evacuation_node_name: str | None = None
    active_pods: Mapping[str, str] | None = None
    conditions: tuple[Fields, ...] | None = None
    interfaces: tuple[Fields, ...] | None = None
    migration_state: Fields | None = None
    phase_transition_timestamps: tuple[Fields, ...] | None = None


class VMI(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: VMISpec = VMISpec()
    status: VMIStatus | None = None


class PodSpec(Struct, frozen=True, rename="camel"):
    node_name: str | None = None


class PodStatus(Struct, frozen=True, rename="camel"):
    phase: str | None = None
    start_time: datetime | None = None
    conditions: tuple[Fields, ...] | None = None


class Pod(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus | None = None


class NodeSpec(Struct, frozen=True):
    unschedulable: bool = False


class NodeStatus(Struct, frozen=True):
    conditions: tuple[Fields, ...] | None = None


class Node(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus | None = None


class MigrationSpec(Struct, frozen=True, rename="camel"):
    vmi_name: str = ""


class MigrationStatus(Struct, frozen=True, rename="camel"):
    phase: str | None = None
    phase_transition_timestamps: tuple[Fields, ...] | None = None


class Migration(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: MigrationSpec = MigrationSpec()
    status: MigrationStatus | None = None


VMIS: Final = Resource(
    VMI, group="kubevirt.io", version="v1", plural="virtualmachineinstances", kind="VirtualMachineInstance"
)
PODS: Final = Resource(Pod, group="", version="v1", plural="pods", kind="Pod")
NODES: Final = Resource(Node, group="", version="v1", plural="nodes", kind="Node", namespaced=False)
MIGRATIONS: Final = Resource(
    Migration,
    group="kubevirt.io",
    version="v1",
    plural="virtualmachineinstancemigrations",
    kind="VirtualMachineInstanceMigration",
)


def phase_of(obj: VMI | Pod | Migration) -> str:
    return (obj.status.phase or "") if obj.status is not None else ""


def node_of(vmi: VMI) -> str:
    return (vmi.status.node_name or "") if vmi.status is not None else ""


def is_active(vmi: VMI | None) -> bool:
    """Return True if the VMI has not ended and is not being deleted."""
    return vmi is not None and phase_of(vmi) not in FINAL and vmi.metadata.deletion_timestamp is None


def condition_of(obj: VMI | Pod | Node, type_: str) -> str:
    """Return the status of a condition, or "" if the object does not have the condition."""
    conditions = (obj.status.conditions or ()) if obj.status is not None else ()
    return next((str(condition["status"]) for condition in conditions if condition["type"] == type_), "")


def uid_of_vmi(pod: Pod) -> str:
    """Return the UID of the VMI that controls the Pod, or "" if the Pod belongs to no VMI."""
    owner = controller_of(pod.metadata)
    return owner.uid if owner is not None and owner.kind == VMIS.kind else ""


def migration_of(vmi: VMI) -> Fields:
    """Return the state of the VMI's last migration, or {} if the VMI was never migrated."""
    return (vmi.status.migration_state or {}) if vmi.status is not None else {}


def is_migrating(vmi: VMI) -> bool:
    state = migration_of(vmi)
    return bool(state) and not state.get("endTimestamp")


def is_schedulable(node: Node) -> bool:
    return not node.spec.unschedulable and is_responsive(node)


def is_responsive(node: Node) -> bool:
    """Return True if the node's condition Ready is True, or is missing because the node is new."""
    return condition_of(node, "Ready") in ("True", "")


def patch_of(meta: ObjectMeta, subresource: str = "", **fields: Any) -> Patch:
    """Return a merge patch for the object with the metadata `meta`. `fields` are the changed top-level fields."""
    metadata = {"uid": meta.uid, **fields.pop("metadata", {})}
    return Patch(msgspec.json.encode({"metadata": metadata, **fields}), subresource)
