"""Everything that one pass over a pool may know, taken from the caches in one go.

A snapshot is a value: decisions made on it depend on nothing else, so the same snapshot gives the same plan. Taking
one looks only at what belongs to this pool, through indexes; it never scans a namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from msgspec import Raw, Struct
from msgspec.structs import replace

from controller.apimachinery.indexes import OWNER_UID, NamesInUse, by_owner_uid
from controller.kubevirt.pool_types import POOL_KIND, Pool
from controller.kubevirt.vm_types import ControllerRevision, VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vms import is_held
from controller.pool.naming import ordinal_of, parse_name
from informers.meta import ObjectKey, ObjectMeta, OwnerReference, controller_of
from informers.resource import Resource
from informers.store import StoreView

HELD_FOR_POOL: Final = "held-for-pool"


def by_pool_name(vm: VirtualMachine) -> Iterable[str]:
    """Index: `namespace/name` of the pool that made a VM which our finalizer holds, whoever owns the VM now."""
    parsed = parse_name(vm.metadata.name) if is_held(vm) else None
    return () if parsed is None else (str(ObjectKey(vm.metadata.namespace, parsed[0])),)


VM_INDEXES: Final[Mapping[str, Callable[[VirtualMachine], Iterable[str]]]] = {
    OWNER_UID: by_owner_uid,
    HELD_FOR_POOL: by_pool_name,
}
REVISION_INDEXES: Final[Mapping[str, Callable[[ControllerRevision], Iterable[str]]]] = {OWNER_UID: by_owner_uid}


def without_foreign_data(revision: ControllerRevision) -> ControllerRevision:
    """The revision without its data if no pool controls it: other controllers have many, and nothing reads those."""
    owner = controller_of(revision.metadata)
    return revision if owner is not None and owner.kind == POOL_KIND else replace(revision, data=Raw())


class Stores(NamedTuple):
    """The caches that a pool is seen through."""

    pools: StoreView[Pool]
    vms: StoreView[VirtualMachine]
    vmis: StoreView[VirtualMachineInstance]
    revisions: StoreView[ControllerRevision]


class Limits(Struct, frozen=True):
    """From the configuration: the writes of a kind in one pass, the revisions that are kept for undo (P4, P11), and
    whether the pools are taken over from KubeVirt's own controller.
    """

    burst: int = 250
    revision_history: int = 5
    takes_over: bool = False


class Snapshot(Struct, frozen=True, kw_only=True):
    """One pool and its surroundings.

    `members` have the pool's UID in their controller reference and live in its namespace; `strays` once did, and still
    carry our finalizer (P2). `vmis` are the members' own, by name. `revisions` are the pool's. `taken` and
    `revision_names` hold the names in use in the namespace. `settled` tells whether the caches show all that was
    written for this pool before (R9).
    """

    owner: Pool
    members: tuple[VirtualMachine, ...]
    strays: tuple[VirtualMachine, ...]
    vmis: Mapping[str, VirtualMachineInstance]
    revisions: tuple[ControllerRevision, ...]
    taken: Container[str]
    revision_names: Container[str]
    now: datetime
    settled: bool
    limits: Limits
    pools: Resource[Pool]

    @property
    def key(self) -> ObjectKey:
        return self.owner.metadata.key

    def ordinal_of(self, vm: VirtualMachine) -> int | None:
        """Its ordinal; None for a VM that somebody else made and gave to the pool."""
        return ordinal_of(vm.metadata.name, self.owner.metadata.name)

    def vmi_of(self, vm: VirtualMachine) -> VirtualMachineInstance | None:
        return self.vmis.get(vm.metadata.name)


def take_snapshot(
    stores: Stores, key: ObjectKey, *, now: datetime, settled: bool, limits: Limits, pools: Resource[Pool]
) -> Snapshot | None:
    """The pool of this key as the caches show it; None when there is no such pool."""
    owner = stores.pools.get(key)
    if owner is None:
        return None
    uid = owner.metadata.uid
    # A reference across namespaces is void in Kubernetes: whoever writes one must not reach into somebody's pool.
    members = tuple(vm for vm in stores.vms.by_index(OWNER_UID, uid) if vm.metadata.namespace == key.namespace)
    vmis = {vm.metadata.name: vmi for vm in members if (vmi := own_vmi(vm, stores.vmis)) is not None}
    revisions = stores.revisions.by_index(OWNER_UID, uid)
    return Snapshot(
        owner=owner,
        members=members,
        strays=strays_of(owner.metadata, stores.vms, pools),
        vmis=vmis,
        revisions=tuple(revision for revision in revisions if revision.metadata.namespace == key.namespace),
        taken=NamesInUse(stores.vms, key.namespace),
        revision_names=NamesInUse(stores.revisions, key.namespace),
        now=now,
        settled=settled,
        limits=limits,
        pools=pools,
    )


def own_vmi(vm: VirtualMachine, vmis: StoreView[VirtualMachineInstance]) -> VirtualMachineInstance | None:
    """The VMI that this VM started. One of the same name can be somebody else's, or its predecessor's."""
    vmi = vmis.get(vm.metadata.key)
    owner = controller_of(vmi.metadata) if vmi is not None else None
    return vmi if owner is not None and owner.uid == vm.metadata.uid else None


def strays_of(pool: ObjectMeta, vms: StoreView[VirtualMachine], pools: Resource[Pool]) -> tuple[VirtualMachine, ...]:
    """The VMs that left this pool, or an earlier one of its name, and that our finalizer still holds (P2)."""
    held = vms.by_index(HELD_FOR_POOL, str(pool.key))
    return tuple(vm for vm in held if _has_left(controller_of(vm.metadata), pool, pools))


def _has_left(owner: OwnerReference | None, pool: ObjectMeta, pools: Resource[Pool]) -> bool:
    if owner is None or owner.kind != POOL_KIND:
        return True
    # A pool of the same name in another group is another controller's, and alive for all we know.
    same_group = owner.api_version.partition("/")[0] == pools.group
    return same_group and owner.name == pool.name and owner.uid != pool.uid
