"""The API resources that the kinds own or use. A resource has a group, a version and a plural.

The API groups of these resources are constants. The API groups of pools and replica sets are settings: see
`controller.kinds`.
"""

from typing import Final

from msgspec import Struct

from controller.apimachinery.label_selectors import LabelSelector
from controller.kubevirt.vm_types import ControllerRevision, VirtualMachine
from controller.kubevirt.vmi_types import Migration, VirtualMachineInstance
from informers.meta import ObjectMeta
from informers.resource import Resource

KUBEVIRT_GROUP: Final = "kubevirt.io"


class Disk(Struct, frozen=True):
    """A DataVolume or a PersistentVolumeClaim. No cache contains disks: each is read when it is needed."""

    metadata: ObjectMeta = ObjectMeta()


class Listener(Struct, frozen=True):
    """A Service for the VMs of a set or pool, made by `kubectl vmherd expose`. The controller never reads it."""

    metadata: ObjectMeta = ObjectMeta()


class DisruptionBudgetSpec(Struct, frozen=True, rename="camel"):
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None


class DisruptionBudget(Struct, frozen=True):
    """A PodDisruptionBudget. The caches contain budgets only with the flag `--disruption-budgets` (P27)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DisruptionBudgetSpec = DisruptionBudgetSpec()


VMIS: Final = Resource(
    VirtualMachineInstance,
    group=KUBEVIRT_GROUP,
    version="v1",
    plural="virtualmachineinstances",
    kind="VirtualMachineInstance",
    partial=True,
)

MIGRATIONS: Final = Resource(
    Migration,
    group=KUBEVIRT_GROUP,
    version="v1",
    plural="virtualmachineinstancemigrations",
    kind="VirtualMachineInstanceMigration",
)

VMS: Final = Resource(
    VirtualMachine, group=KUBEVIRT_GROUP, version="v1", plural="virtualmachines", kind="VirtualMachine", partial=True
)
VM_REQUESTS: Final = Resource(
    VirtualMachine, group="subresources.kubevirt.io", version="v1", plural="virtualmachines", kind="VirtualMachine"
)
"""The requests to KubeVirt's API server virt-api about one VM. Only subresources such as `restart` are served."""

RESTART: Final = "restart"

VMI_REQUESTS: Final = Resource(
    VirtualMachineInstance,
    group="subresources.kubevirt.io",
    version="v1",
    plural="virtualmachineinstances",
    kind="VirtualMachineInstance",
)
"""The requests to virt-api about one VMI."""

PAUSE, UNPAUSE = "pause", "unpause"

CONTROLLER_REVISIONS: Final = Resource(
    ControllerRevision, group="apps", version="v1", plural="controllerrevisions", kind="ControllerRevision"
)
PVCS: Final = Resource(Disk, group="", version="v1", plural="persistentvolumeclaims", kind="PersistentVolumeClaim")
DATA_VOLUMES: Final = Resource(
    Disk, group="cdi.kubevirt.io", version="v1beta1", plural="datavolumes", kind="DataVolume"
)
SERVICES: Final = Resource(Listener, group="", version="v1", plural="services", kind="Service")
DISRUPTION_BUDGETS: Final = Resource(
    DisruptionBudget, group="policy", version="v1", plural="poddisruptionbudgets", kind="PodDisruptionBudget"
)
