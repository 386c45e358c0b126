"""The kinds that this controller reconciles. `KINDS` has a descriptor for each, which all parts of the program read.

A descriptor contains only data. The rules of a kind are in the kind's own package, which is imported only when it is
needed. docs/adding-a-kind.md shows how to add a kind.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from controller.kubevirt import resources
from controller.kubevirt.annotations import POOL_FINALIZER
from controller.kubevirt.pool_types import POOL_KIND, Pool
from controller.kubevirt.replicaset_types import REPLICA_SET_KIND, ReplicaSet
from controller.kubevirt.services import template_of_pool, template_of_replicaset
from controller.kubevirt.vmi_types import VMITemplate
from informers.meta import KubeObject
from informers.resource import Resource

T = TypeVar("T", bound=KubeObject)

READ: Final = ("get", "list", "watch")


class Access(Struct, frozen=True):
    """The API verbs that a kind needs on another resource, for example on VMs, or on a subresource of this resource."""

    resource: Resource[Any]
    verbs: tuple[str, ...]
    subresource: str = ""

    @property
    def is_cached(self) -> bool:
        return "watch" in self.verbs


class Kind(Struct, Generic[T], frozen=True, kw_only=True, eq=False):
    name: str
    """The short name of the kind, used for the flag `--<name>-group`, the queue and the metric label `controller`."""

    noun: str
    """The word for one object of the kind in texts for users, such as `replica set`. The plural ends with `s`."""

    package: str
    """The package with the kind's rules. Its module `wiring` has `CACHES`, `OWNER_CACHE`, `rules_of` and `assemble`."""

    object_type: type[T]
    kind: str
    plural: str

    version: str
    """The version with the schema of the CRD. The controller uses this version if the API server serves it."""

    other_versions: tuple[str, ...] = ()
    """Further versions with the same fields, in the order of preference, for clusters that do not serve `version`."""

    is_optional: bool = False
    """True if the controller also starts in a cluster that does not serve the kind, and then waits for it."""

    group: str
    """The API group in all modes except `alongside`. For a kind of KubeVirt, this is KubeVirt's group."""

    own_group: str
    short_names: tuple[str, ...]
    own_short_names: tuple[str, ...]
    """The short names for kubectl in the API group `own_group`. `short_names` are those in the API group `group`."""

    component: str
    metric_prefix: str
    writes: tuple[tuple[str, tuple[Resource[Any], ...]], ...]
    """The writes that metrics count, from 0 on: a verb such as `created`, and the resources of the objects."""

    access: tuple[Access, ...]
    owner_verbs: tuple[str, ...] = ()
    """The additional API verbs on the kind's own objects, beside those for reading, and for writing the status."""

    loop_flag: str = ""
    """virt-controller's flag for the number of workers for this kind, or "" if KubeVirt has no such kind."""

    known_status: frozenset[str] | None = None
    """The status fields in KubeVirt's CRD of the kind. In the mode `takeover`, the API server uses this CRD."""

    vmi_template: Callable[[T], VMITemplate] | None = None
    """Returns the VMI template of an object. Without it, `kubectl vmherd expose` does not support the kind."""

    finalizer: str = ""
    """The finalizer that vmherd sets on the kind's objects, or "". Its package has `cleanup.plan_cleanup`."""

    finalized: Resource[Any] | None = None
    """The resource of the children that get the same finalizer as the kind's objects, or None."""

    tallied: Resource[Any] | None = None
    """The resource of the VMs or VMIs whose starts, stops and healings metrics count for each object, or None."""

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def group_setting(self) -> str:
        """The name of the configuration field with the kind's API group, such as `pool_group` for `--pool-group`."""
        return f"{self.name}_group"

    def resource(self, group: str = "", version: str = "") -> Resource[T]:
        """An empty group means `self.group`, and an empty version means `self.version`."""
        return Resource(
            self.object_type,
            group=group or self.group,
            version=version or self.version,
            plural=self.plural,
            kind=self.kind,
        )

    def module(self, name: str) -> ModuleType:
        return import_module(f"{self.package}.{name}")


_WRITE: Final = ("create", "patch", "delete")
_KUBEVIRT_STATUS: Final = frozenset({"replicas", "readyReplicas", "labelSelector", "conditions"})

REPLICA_SETS: Final[Kind[ReplicaSet]] = Kind(
    name="replicaset",
    noun="replica set",
    package="controller.replicaset",
    object_type=ReplicaSet,
    kind=REPLICA_SET_KIND,
    plural="virtualmachineinstancereplicasets",
    version="v1",
    group="kubevirt.io",
    own_group="vmherd.dev",
    short_names=("vmirs", "vmirss"),
    own_short_names=("hvmirs", "hvmirss"),
    component="virtualmachineinstancereplicaset-controller",
    metric_prefix="vmherd_vmirs",
    writes=(("created", (resources.VMIS,)), ("deleted", (resources.VMIS,))),
    access=(
        Access(resources.VMIS, (*READ, *_WRITE)),
        Access(resources.CONTROLLER_REVISIONS, (*READ, *_WRITE)),
    ),
    # The controller patches a set to note the template of VMIs that have no hash.
    owner_verbs=("patch",),
    loop_flag="--rs-controller-threads",
    known_status=_KUBEVIRT_STATUS,
    vmi_template=template_of_replicaset,
    tallied=resources.VMIS,
)

POOLS: Final[Kind[Pool]] = Kind(
    name="pool",
    noun="pool",
    package="controller.pool",
    object_type=Pool,
    kind=POOL_KIND,
    plural="virtualmachinepools",
    version="v1beta1",
    other_versions=("v1", "v1alpha1"),
    is_optional=True,
    group="pool.kubevirt.io",
    own_group="pool.vmherd.dev",
    short_names=("vmpool", "vmpools"),
    own_short_names=("hvmpool", "hvmpools"),
    component="virtualmachinepool-controller",
    metric_prefix="vmherd_vmpool",
    writes=(
        ("created", (resources.VMS,)),
        ("deleted", (resources.VMS, resources.VMIS)),
        ("updated", (resources.VMS,)),
    ),
    access=(
        Access(resources.VMIS, (*READ, "patch", "delete")),
        Access(resources.VMS, (*READ, *_WRITE)),
        Access(resources.CONTROLLER_REVISIONS, (*READ, *_WRITE)),
        # To keep a disk after its VM is deleted, the controller removes the disk's ownerReference to the VM.
        # If a disk becomes larger in the template, the controller patches the size that its claim requests.
        # Before a VM is created, the controller looks for disks of an earlier VM of the same name.
        # Disks are not cached.
        Access(resources.PVCS, ("get", "list", "patch")),
        Access(resources.DATA_VOLUMES, ("get", "list", "patch")),
        # KubeVirt does not start a VM with run strategy Manual or RerunOnFailure again after its VMI is deleted. To
        # restart such a VM, the controller asks virt-api. Some clusters do not serve this subresource.
        Access(resources.VM_REQUESTS, ("update",), resources.RESTART),
        # A standby that keeps its memory is paused, and unpaused when it is needed.
        Access(resources.VMI_REQUESTS, ("update",), resources.PAUSE),
        Access(resources.VMI_REQUESTS, ("update",), resources.UNPAUSE),
    ),
    # The controller patches pools to set the finalizer, and to set annotations that later reconciliations read.
    owner_verbs=("patch",),
    loop_flag="--pool-controller-threads",
    known_status=_KUBEVIRT_STATUS,
    vmi_template=template_of_pool,
    finalizer=POOL_FINALIZER,
    finalized=resources.VMS,
    tallied=resources.VMS,
)

KINDS: Final[tuple[Kind[Any], ...]] = (REPLICA_SETS, POOLS)

BUDGETS: Final = Access(resources.DISRUPTION_BUDGETS, (*READ, *_WRITE))
"""What all kinds need with the flag `--disruption-budgets` (P27)."""


MIGRATIONS: Final = Access(resources.MIGRATIONS, (*READ, "create", "delete"))
"""What pools need with the flag `--migrations` (P13)."""


def types_of(kinds: Sequence[Kind[Any]]) -> Mapping[str, tuple[Kind[Any], str]]:
    """Return the kind and the API group for each type name that a user may write. kubectl accepts the same names."""
    return {
        **{name: (kind, kind.group) for kind in kinds for name in (*kind.short_names, kind.singular, kind.plural)},
        **{name: (kind, kind.own_group) for kind in kinds for name in kind.own_short_names},
    }


def accesses() -> tuple[Access, ...]:
    """Return the verbs that all kinds together need on other resources. Each resource or subresource occurs once."""
    verbs: dict[tuple[Resource[Any], str], dict[str, None]] = {}
    for kind in KINDS:
        for access in kind.access:
            verbs.setdefault((access.resource, access.subresource), {}).update(dict.fromkeys(access.verbs))
    return tuple(Access(resource, tuple(each), subresource) for (resource, subresource), each in verbs.items())


def names_of(kinds: Iterable[Kind[Any]]) -> tuple[str, ...]:
    """Return the resource name of each kind in `kind.group`, such as `virtualmachinepools.pool.kubevirt.io`."""
    return tuple(f"{kind.plural}.{kind.group}" for kind in kinds)
