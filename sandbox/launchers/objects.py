"""This module defines the fields of Pods, Nodes and migrations that the simulation of virt-launcher reads."""

from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from controller.apimachinery.conditions import Condition, find_condition
from informers.meta import ObjectMeta, controller_of
from informers.resource import Resource
from sandbox.vmis import VMIS

CREATED_BY: Final = "kubevirt.io/created-by"
"""The label on a Pod of a VMI. Its value is the UID of the VMI."""

MIGRATION_UID: Final = "kubevirt.io/migrationJobUID"
"""The label on a migration's target Pod. Its value is the UID of the migration."""

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
    status: Status | None = None


class Node(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: Status | None = None


class Migration(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: MigrationSpec = MigrationSpec()
    status: Status | None = None


PODS: Final = Resource(Pod, group="", version="v1", plural="pods", kind="Pod")
NODES: Final = Resource(Node, group="", version="v1", plural="nodes", kind="Node", namespaced=False)
MIGRATIONS: Final = Resource(
    Migration,
    group="kubevirt.io",
    version="v1",
    plural="virtualmachineinstancemigrations",
    kind="VirtualMachineInstanceMigration",
)


def status_of(obj: Pod | Node | Migration) -> Status:
    return obj.status or Status()


def phase_of(obj: Pod | Migration) -> str:
    return status_of(obj).phase or ""


def condition_of(obj: Pod | Node, type_: str) -> str:
    """Return the status of a condition, or "" if the object does not have the condition."""
    condition = find_condition(status_of(obj).conditions, type_)
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
