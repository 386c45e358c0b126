"""The type VirtualMachineInstanceReplicaSet, with the fields that the controller reads."""

from typing import Final

from msgspec import Struct

from controller.apimachinery.label_selectors import LabelSelector
from controller.kubevirt.vmi_types import ReplicaStatus, VMITemplate
from informers.meta import ObjectMeta

REPLICA_SET_KIND: Final = "VirtualMachineInstanceReplicaSet"


class ReplicaSetSpec(Struct, frozen=True, gc=False, rename="camel"):
    replicas: int | None = None
    selector: LabelSelector | None = None
    template: VMITemplate | None = None
    paused: bool | None = None


class ReplicaSetStatus(ReplicaStatus, frozen=True, gc=False, kw_only=True):
    """The status of a replica set (R11). The revisions are hashes of templates (R14)."""


class ReplicaSet(Struct, frozen=True, gc=False):
    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus | None = None
