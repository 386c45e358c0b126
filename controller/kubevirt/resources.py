"""Where KubeVirt's objects are found on the API server.

The groups of the kinds that this controller serves are parameters: beside a KubeVirt that runs its own controllers for
them, ours serves the same kinds under a group of its own. VMIs are always KubeVirt's.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from controller.kubevirt.pool_types import Pool
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.kubevirt.vm_types import POOL_KIND, ControllerRevision, VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from informers.meta import ObjectMeta
from informers.resource import Resource

KUBEVIRT_GROUP: Final = "kubevirt.io"
POOL_GROUP: Final = "pool.kubevirt.io"


class Disk(Struct, frozen=True):
    """A DataVolume or a PersistentVolumeClaim. No cache holds them: they are read one by one, for their owners."""

    metadata: ObjectMeta = ObjectMeta()


class Listener(Struct, frozen=True):
    """A Service. None is ever read: people have them made in front of their VMs."""

    metadata: ObjectMeta = ObjectMeta()


VMIS: Final = Resource(
    VirtualMachineInstance,
    group=KUBEVIRT_GROUP,
    version="v1",
    plural="virtualmachineinstances",
    kind="VirtualMachineInstance",
)

VMS: Final = Resource(
    VirtualMachine, group=KUBEVIRT_GROUP, version="v1", plural="virtualmachines", kind="VirtualMachine"
)
CONTROLLER_REVISIONS: Final = Resource(
    ControllerRevision, group="apps", version="v1", plural="controllerrevisions", kind="ControllerRevision"
)
PVCS: Final = Resource(Disk, group="", version="v1", plural="persistentvolumeclaims", kind="PersistentVolumeClaim")
DATA_VOLUMES: Final = Resource(
    Disk, group="cdi.kubevirt.io", version="v1beta1", plural="datavolumes", kind="DataVolume"
)
SERVICES: Final = Resource(Listener, group="", version="v1", plural="services", kind="Service")


def replicaset_resource(group: str = KUBEVIRT_GROUP) -> Resource[ReplicaSet]:
    """VirtualMachineInstanceReplicaSets under this group. Resources are equal by identity: make one, and share it."""
    return Resource(
        ReplicaSet,
        group=group,
        version="v1",
        plural="virtualmachineinstancereplicasets",
        kind="VirtualMachineInstanceReplicaSet",
    )


def pool_resource(group: str = POOL_GROUP) -> Resource[Pool]:
    """VirtualMachinePools under this group. Resources are equal by identity: make one, and share it."""
    return Resource(Pool, group=group, version="v1beta1", plural="virtualmachinepools", kind=POOL_KIND)
