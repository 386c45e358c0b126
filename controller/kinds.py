"""The kinds that this controller reconciles: one descriptor for each, and `KINDS` with all of them.

All code that handles every kind reads `KINDS`: flags, modes, permissions, the checks before the start, metrics,
commands and the wiring of the program. docs/adding-a-kind.md shows how to add a kind.

A descriptor is data. The rules of a kind are in the kind's own package. They are imported only when they are needed, so
`--help` is fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from controller.config.modes import Mode
from controller.kubevirt import resources
from controller.kubevirt.annotations import POOL_FINALIZER
from controller.kubevirt.pool_types import POOL_KIND, Pool
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.kubevirt.services import template_of_pool, template_of_replicaset
from controller.kubevirt.vmi_types import VMITemplate
from informers.meta import KubeObject
from informers.resource import Resource

T = TypeVar("T", bound=KubeObject)

READ: Final = ("get", "list", "watch")
"""The verbs of a resource that is cached."""


class Access(Struct, frozen=True):
    """The verbs that the controller of a kind uses on another resource, such as VMs."""

    resource: Resource[Any]
    verbs: tuple[str, ...]

    @property
    def is_cached(self) -> bool:
        return "watch" in self.verbs


class Kind(Struct, Generic[T], frozen=True, kw_only=True, eq=False):
    """One kind. Two kinds are equal only if they are the same object."""

    name: str
    """The short name: of the queue, of the label `controller` in metrics, and in `--<name>-group`."""

    package: str
    """The package with the kind's rules. Its module `wiring` has `CACHES` and `assemble`."""

    object_type: type[T]
    kind: str
    plural: str
    version: str

    group: str
    """The API group: KubeVirt's own, if KubeVirt has the kind."""

    own_group: str
    """The API group in the mode `alongside`."""

    short_names: tuple[str, ...]
    own_short_names: tuple[str, ...]
    """The short names of the kind in kubectl: in KubeVirt's group, and in the group for the mode `alongside`."""

    component: str
    """The source of the kind's Events."""

    metric_prefix: str
    """The beginning of the names of all series for single objects."""

    writes: tuple[tuple[str, tuple[Resource[Any], ...]], ...]
    """The writes of VMs and VMIs for the kind: created, deleted or updated. Their counters start at zero."""

    access: tuple[Access, ...]
    owner_verbs: tuple[str, ...] = ()
    """The verbs on the kind's own objects, besides those to read them and to write their status."""

    loop_flag: str = ""
    """The flag of virt-controller with the number of workers for this kind; "" if KubeVirt has no such kind."""

    known_status: frozenset[str] | None = None
    """The status fields in KubeVirt's CRD of the kind, which the API server serves in the mode `takeover`."""

    vmi_template: Callable[[T], VMITemplate] | None = None
    """Returns the VMI template of an object, for `vmherd expose`; None if the kind cannot be exposed."""

    finalizer: str = ""
    """Our finalizer on the kind's objects, which `vmherd cleanup` removes; "" if there is none.

    A kind with a finalizer has a module `cleanup` with the function `plan_cleanup` in its package."""

    finalized: Resource[Any] | None = None
    """The resource of the children that have the finalizer as well."""

    has_tally: bool = False
    """Whether metrics count the VMs that were started, stopped and healed for each object."""

    has_kubevirt_gauges: bool = False
    """Whether the replica gauges are also shown under the names that KubeVirt has proposed for the kind."""

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def group_setting(self) -> str:
        """The field of the configuration with the kind's API group. The flag of `pool_group` is `--pool-group`."""
        return f"{self.name}_group"

    def group_in(self, mode: str) -> str:
        """The API group of the kind in a mode. For `auto` it is KubeVirt's group, until another mode is selected."""
        return self.own_group if mode == Mode.ALONGSIDE else self.group

    def resource(self, group: str = "") -> Resource[T]:
        """Make a resource of this kind in this API group. Two resources are equal only if they are the same object."""
        return Resource(
            self.object_type, group=group or self.group, version=self.version, plural=self.plural, kind=self.kind
        )

    def module(self, name: str) -> ModuleType:
        """A module of the kind's package."""
        return import_module(f"{self.package}.{name}")


_WRITE: Final = ("create", "patch", "delete")
_KUBEVIRT_STATUS: Final = frozenset({"replicas", "readyReplicas", "labelSelector", "conditions"})

REPLICA_SETS: Final[Kind[ReplicaSet]] = Kind(
    name="replicaset",
    package="controller.replicaset",
    object_type=ReplicaSet,
    kind="VirtualMachineInstanceReplicaSet",
    plural="virtualmachineinstancereplicasets",
    version="v1",
    group="kubevirt.io",
    own_group="vmherd.dev",
    short_names=("vmirs", "vmirss"),
    own_short_names=("hvmirs", "hvmirss"),
    component="virtualmachineinstancereplicaset-controller",
    metric_prefix="kubevirt_vmirs",
    writes=(("created", (resources.VMIS,)), ("deleted", (resources.VMIS,))),
    access=(Access(resources.VMIS, (*READ, *_WRITE)),),
    loop_flag="--rs-controller-threads",
    known_status=_KUBEVIRT_STATUS,
    vmi_template=template_of_replicaset,
)

POOLS: Final[Kind[Pool]] = Kind(
    name="pool",
    package="controller.pool",
    object_type=Pool,
    kind=POOL_KIND,
    plural="virtualmachinepools",
    version="v1beta1",
    group="pool.kubevirt.io",
    own_group="pool.vmherd.dev",
    short_names=("vmpool", "vmpools"),
    own_short_names=("hvmpool", "hvmpools"),
    component="virtualmachinepool-controller",
    metric_prefix="kubevirt_vmpool",
    writes=(
        ("created", (resources.VMS,)),
        ("deleted", (resources.VMS, resources.VMIS)),
        ("updated", (resources.VMS,)),
    ),
    access=(
        Access(resources.VMIS, (*READ, "patch", "delete")),
        Access(resources.VMS, (*READ, *_WRITE)),
        Access(resources.CONTROLLER_REVISIONS, (*READ, "create", "delete")),
        # If a disk has to stay after its VM is deleted, its ownerReference to the VM is removed. Disks are not cached.
        Access(resources.PVCS, ("get", "patch")),
        Access(resources.DATA_VOLUMES, ("get", "patch")),
    ),
    # To set the finalizer, and annotations for later passes.
    owner_verbs=("patch",),
    loop_flag="--pool-controller-threads",
    known_status=_KUBEVIRT_STATUS,
    vmi_template=template_of_pool,
    finalizer=POOL_FINALIZER,
    finalized=resources.VMS,
    has_tally=True,
    has_kubevirt_gauges=True,
)

KINDS: Final[tuple[Kind[Any], ...]] = (REPLICA_SETS, POOLS)


def accesses() -> tuple[Access, ...]:
    """The verbs for each resource that any kind needs. Each resource occurs once."""
    verbs: dict[Resource[Any], dict[str, None]] = {}
    for kind in KINDS:
        for access in kind.access:
            verbs.setdefault(access.resource, {}).update(dict.fromkeys(access.verbs))
    return tuple(Access(resource, tuple(each)) for resource, each in verbs.items())


def names_of(kinds: Iterable[Kind[Any]]) -> tuple[str, ...]:
    """The resource name of each kind in KubeVirt's group, such as `virtualmachinepools.pool.kubevirt.io`."""
    return tuple(f"{kind.plural}.{kind.group}" for kind in kinds)
