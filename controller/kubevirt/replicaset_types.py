"""The type VirtualMachineInstanceReplicaSet, with the fields that the controller reads."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from controller.apimachinery.conditions import Condition
from controller.apimachinery.label_selectors import LabelSelector
from controller.kubevirt.vmi_types import VMITemplate
from informers.meta import ObjectMeta

REPLICA_SET_KIND: Final = "VirtualMachineInstanceReplicaSet"


class ReplicaSetSpec(Struct, frozen=True, gc=False, rename="camel"):
    replicas: int | None = None
    selector: LabelSelector | None = None
    template: VMITemplate | None = None
    paused: bool | None = None


class ReplicaSetStatus(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """The status of a replica set (R11). All fields are optional, because another controller may have written it.

    The revisions are hashes of templates. Each VMI has the hash of its template in a label (R14).
    """

    replicas: int | None = None
    ready_replicas: int | None = None
    updated_replicas: int | None = None
    observed_generation: int | None = None
    label_selector: str | None = None
    current_revision: str | None = None
    update_revision: str | None = None
    printable_status: str | None = None
    problem: str | None = None
    conditions: tuple[Condition, ...] | None = None


class ReplicaSet(Struct, frozen=True, gc=False):
    """A VirtualMachineInstanceReplicaSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus | None = None
