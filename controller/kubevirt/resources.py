"""Where KubeVirt's objects are found on the API server.

The groups of the kinds that this controller serves are parameters: beside a KubeVirt that runs its own controllers for
them, ours serves the same kinds under a group of its own. VMIs are always KubeVirt's.
"""

from __future__ import annotations

from typing import Final

from controller.kubevirt.types import ReplicaSet, VirtualMachineInstance
from informers.resource import Resource

KUBEVIRT_GROUP: Final = "kubevirt.io"

VMIS: Final = Resource(
    VirtualMachineInstance,
    group=KUBEVIRT_GROUP,
    version="v1",
    plural="virtualmachineinstances",
    kind="VirtualMachineInstance",
)


def replicaset_resource(group: str = KUBEVIRT_GROUP) -> Resource[ReplicaSet]:
    """VirtualMachineInstanceReplicaSets under this group. Resources are equal by identity: make one, and share it."""
    return Resource(
        ReplicaSet,
        group=group,
        version="v1",
        plural="virtualmachineinstancereplicasets",
        kind="VirtualMachineInstanceReplicaSet",
    )
