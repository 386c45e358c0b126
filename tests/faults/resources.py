"""The resources of the control plane that the tests of faults read and write."""

from collections.abc import Mapping
from typing import Final

SETS, POOLS = "virtualmachineinstancereplicasets", "virtualmachinepools"
VMS, VMIS = "virtualmachines", "virtualmachineinstances"
VOLUMES, CLAIMS = "datavolumes", "persistentvolumeclaims"
REVISIONS = "controllerrevisions"
BUDGETS = "poddisruptionbudgets"

KIND_OF: Final[Mapping[str, str]] = {
    SETS: "VirtualMachineInstanceReplicaSet",
    POOLS: "VirtualMachinePool",
    VMS: "VirtualMachine",
    VMIS: "VirtualMachineInstance",
    VOLUMES: "DataVolume",
    CLAIMS: "PersistentVolumeClaim",
    REVISIONS: "ControllerRevision",
    BUDGETS: "PodDisruptionBudget",
}
"""The kinds that histories and scenarios consist of, by resource."""
API_OF: Final[Mapping[str, str]] = {
    SETS: "/apis/kubevirt.io/v1",
    POOLS: "/apis/pool.kubevirt.io/v1beta1",
    VMS: "/apis/kubevirt.io/v1",
    VMIS: "/apis/kubevirt.io/v1",
    VOLUMES: "/apis/cdi.kubevirt.io/v1beta1",
    CLAIMS: "/api/v1",
    REVISIONS: "/apis/apps/v1",
    BUDGETS: "/apis/policy/v1",
    "configmaps": "/api/v1",
}
