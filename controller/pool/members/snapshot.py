"""The input of one reconciliation of a pool: the pool and its objects, read from the caches at one moment.

A snapshot is a value that does not change. A plan depends only on its snapshot. Indexes find the objects of the pool,
so no reconciliation reads all objects of a namespace.
"""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from msgspec import Struct

from controller.apimachinery.indexes import NAMESPACE, OWNER_UID, UID, by_namespace, by_owner_uid
from controller.kubevirt.annotations import CLAIMED_BY, CLAIMED_UNTIL, MIGRATE, POOL_UID, own_notes
from controller.kubevirt.busy import is_claimed
from controller.kubevirt.delicate import is_busy
from controller.kubevirt.live_updates import RolloutSettings
from controller.kubevirt.pool_types import POOL_KIND, Pool
from controller.kubevirt.standby import is_standby
from controller.kubevirt.vm_types import ControllerRevision, VirtualMachine
from controller.kubevirt.vmi_types import Migration, VirtualMachineInstance
from controller.kubevirt.vms import has_pool_finalizer
from controller.pool.members.machine import Machine, Machines, own_vmi
from controller.pool.spec.intent import Intent, asks_for_migrations, one_shot_problems, parse_intent, standby_problems
from controller.pool.spec.naming import ordinal_of, parse_name
from controller.pool.spec.policies import keeps_disks
from controller.replicas.catalogue import Place
from controller.replicas.disruption_budget import Budgets, useless_budget
from controller.replicas.notes import plan_note
from controller.replicas.revisions import by_former_pool_uid, former_pool_of_revision
from controller.replicas.settings import asks_for_budget
from controller.replicas.wrong_annotations import Wrong, all_wrong, wrong_in_template, wrong_on
from controller.runtime.actions import Plan
from controller.runtime.execute.refusals import Refusal
from controller.runtime.members.groups import Group, Member
from informers.meta import ObjectKey, ObjectMeta, OwnerReference, annotations_of, controller_of, labels_of
from informers.resource import Resource
from informers.store import StoreView

POOL_NAME: Final = "pool-name"
UNOWNED: Final = "unowned"
FORMER_POOL_UID: Final = "former-pool-uid"
FORMER_POOL: Final = "former-pool"

SHORTEST_CUT: Final = 30
"""The name of a revision has at least so many characters of the pool's name, or the whole name."""


def by_pool_name(vm: VirtualMachine) -> Iterable[str]:
    """Return `namespace/name` of the pool that created the VM (see `former_pool_of`)."""
    return map(str, former_pool_of(vm))


def former_pool_of(vm: VirtualMachine) -> tuple[ObjectKey, ...]:
    """Return the key of the pool that created the VM, if the VM has the pool finalizer or notes of vmherd."""
    return _pool_in_name(vm) if has_pool_finalizer(vm) or own_notes(vm.metadata) else ()


def by_unowned_name(vm: VirtualMachine) -> Iterable[str]:
    """Return `namespace/name` of the pool that would give a VM without a controller its name."""
    return map(str, _pool_in_name(vm)) if controller_of(vm.metadata) is None else ()


def _pool_in_name(vm: VirtualMachine) -> tuple[ObjectKey, ...]:
    parsed = parse_name(vm.metadata.name)
    return () if parsed is None else (ObjectKey(vm.metadata.namespace, parsed[0]),)


VM_INDEXES: Final[Mapping[str, Callable[[VirtualMachine], Iterable[str]]]] = {
    OWNER_UID: by_owner_uid,
    POOL_NAME: by_pool_name,
    UNOWNED: by_unowned_name,
    NAMESPACE: by_namespace,
}


def by_former_pool(revision: ControllerRevision) -> Iterable[str]:
    """Return the beginning of the key of `former_pool_of_revision`."""
    return map(_beginning, former_pool_of_revision(revision))


def _beginning(pool: ObjectKey) -> str:
    return f"{pool.namespace}/{pool.name[:SHORTEST_CUT]}"


REVISION_INDEXES: Final[Mapping[str, Callable[[ControllerRevision], Iterable[str]]]] = {
    OWNER_UID: by_owner_uid,
    FORMER_POOL_UID: by_former_pool_uid,
    FORMER_POOL: by_former_pool,
}


class Stores(NamedTuple):
    pools: StoreView[Pool]
    vms: StoreView[VirtualMachine]
    vmis: StoreView[VirtualMachineInstance]
    revisions: StoreView[ControllerRevision]


class Limits(Struct, frozen=True):
    """Limits from the configuration.

    `burst` is the maximum number of writes of one kind in one reconciliation (P4). `revision_history` is the number of
    unused revisions to keep (P11). `max_replicas` is the maximum number of VMs of one pool, or 0 for no limit (P4).
    `takes_over` is True if vmherd takes the pools over from KubeVirt's controller. `migrations` is True if pools may
    start live migrations (P13).
    """

    burst: int = 250
    revision_history: int = 5
    takes_over: bool = False
    max_replicas: int = 0
    migrations: bool = False


class LiveUpdates(Struct, frozen=True):
    """The changes that KubeVirt makes to running VMIs. `since` is the start of each unfinished one, by the VM's UID.
    `starts` is True if the pool starts the live migrations that they need, because KubeVirt starts none.
    """

    since: Mapping[str, datetime] = {}
    rollout: RolloutSettings = RolloutSettings(changes=True, migrates=True, judges=True)
    starts: bool = False


class Snapshot(Struct, frozen=True, kw_only=True):
    """One pool and the objects that belong to it.

    - `members`: the VMs that the pool controls, with their VMIs and their unready periods, in groups with equal traits.
    - `strays`: former members that still have the pool finalizer or notes of vmherd (P2).
    - `revisions`: the ControllerRevisions that the pool controls.
    - `orphaned_revisions`: former revisions of the pool that no owner controls now.
    - `unowned`: the VMs without a controller that have names of the pool, if the pool has never created a VM (P3).
    - `taken`: the names of all VMs in the namespace.
    - `revision_names`: the names of the ControllerRevisions in the namespace for which `is_revision_name` is true.
    - `refused`: the members whose change the server refused, and whose next try is not due yet, by name (P22).
    - `live`: the changes of running VMIs, or None if KubeVirt changes no running VMI.
    - `settled`: True if the caches show all earlier writes for this pool (R9).
    - `budgets`: the disruption budgets that matter to the pool (P27), or None if they are not known.
    - `migrations`: the live migrations that the pool has started, or None if they are not known.
    """

    owner: Pool
    members: Machines
    strays: tuple[Machine, ...]
    revisions: tuple[ControllerRevision, ...]
    orphaned_revisions: tuple[ControllerRevision, ...]
    taken: Container[str]
    revision_names: Container[str]
    now: datetime
    settled: bool
    limits: Limits
    pools: Resource[Pool]
    refused: Mapping[str, Refusal] = {}
    live: LiveUpdates | None = None
    budgets: Budgets | None = None
    migrations: tuple[Migration, ...] | None = None
    unowned: tuple[VirtualMachine, ...] = ()

    @property
    def key(self) -> ObjectKey:
        return self.owner.metadata.key

    @property
    def keeps_disks(self) -> bool:
        """True if the pool keeps the disks of deleted VMs (P10), also if its spec is invalid."""
        return keeps_disks(self.owner.spec)

    @property
    def marked(self) -> Mapping[str, int]:
        """The numbers of VMs that are busy now (P24), claimed (P33) or on standby (P32). The busy ones are replicas."""
        claimed = self.members.where(lambda each: is_claimed(each.metadata))
        replicas = self.members.where(lambda each: not is_claimed(each.metadata)) if claimed else self.members
        return {
            "busy": len(replicas.where(lambda each: is_busy(each.vm, each.vmi, self.now))),
            "claimed": len(claimed),
            "standby": len(self.members.where(lambda each: is_standby(each.vm, each.vmi, self.now))),
        }

    @property
    def wrong_annotations(self) -> tuple[Wrong, ...]:
        """The wrong annotations of the pool, of its VMs and of their VMIs (P23)."""

        def found() -> Iterator[tuple[str, Group[Machine], tuple[Wrong, ...]]]:
            for group in self.members.groups:
                vm, vmi = group.traits.vm, group.traits.vmi
                if vm.metadata.annotations:
                    yield "VM", group, (*wrong_on(vm.metadata, Place.VM), *_wrong_claim(vm.metadata))
                if vmi is not None and vmi.metadata.annotations:
                    yield "VMI", group, wrong_on(vmi.metadata, Place.VMI_OF_VM)

        misfits = [Wrong(each) for each in (*one_shot_problems(self.owner), *standby_problems(self.owner))]
        misfits += wrong_in_template(self.owner.spec.virtual_machine_template)
        if asks_for_migrations(self.owner) and not self.limits.migrations:
            misfits.append(Wrong(f"annotation {MIGRATE} has no effect: the controller runs without --migrations"))
        return (*misfits, *self.useless_budget, *all_wrong(self.owner.metadata, Place.POOL, found()))

    @property
    def useless_budget(self) -> tuple[Wrong, ...]:
        """The annotation that asks for a disruption budget, if the pool gets none (P27)."""
        intent = parse_intent(self.owner) if asks_for_budget(self.owner.metadata) else None
        if not isinstance(intent, Intent):
            return ()
        vmis = (each.vmi for each in self.members if each.vmi is not None)
        return useless_budget(self.owner.metadata, self.budgets, intent.selector, intent.template.machine_labels, vmis)

    def note(self, changes: Mapping[str, str | None], why: str, **fields: Any) -> Plan:
        """Plan a patch of these annotations of the pool. `fields` are those of `plan_note`."""
        return plan_note(self.pools, self.owner.metadata, changes, why, **fields)

    def ordinal_of(self, vm: Member) -> int | None:
        return ordinal_of(vm.metadata.name, self.owner.metadata.name)

    def ordinals_of(self, members: Iterable[Member]) -> list[int]:
        """Return the ordinals of the VMs that have one, in ascending order."""
        return sorted(ordinal for each in members if (ordinal := self.ordinal_of(each)) is not None)

    def rank_of(self, vm: Member) -> tuple[int, str]:
        """Return the sort key of the VM by its ordinal. VMs without an ordinal come first."""
        ordinal = self.ordinal_of(vm)
        return (-1 if ordinal is None else ordinal, vm.metadata.name)


def _wrong_claim(vm: ObjectMeta) -> tuple[Wrong, ...]:
    if is_claimed(vm) or CLAIMED_UNTIL not in annotations_of(vm):
        return ()
    return (Wrong(f"annotation {CLAIMED_UNTIL} has no effect without {CLAIMED_BY}", rank=(3, False, CLAIMED_UNTIL)),)


def strays_of(pool: ObjectMeta, stores: Stores, pools: Resource[Pool]) -> tuple[Machine, ...]:
    """Return the VMs that have left the pool, or an earlier one with its name, and still have the pool finalizer or
    notes of vmherd (P2).
    """
    found = stores.vms.by_index(POOL_NAME, str(pool.key))
    strays = (vm for vm in found if _has_left(controller_of(vm.metadata), pool, pools))
    return tuple(Machine(vm, own_vmi(vm, stores.vmis)) for vm in strays)


def unowned_of(
    pool: Pool, revisions: Collection[ControllerRevision], vms: StoreView[VirtualMachine]
) -> tuple[VirtualMachine, ...]:
    """Return the VMs without a controller that have names of the pool, by ordinal. If the pool has a revision, it has
    created VMs already, and the result is empty: its user may have detached such a VM.
    """
    meta = pool.metadata
    found = () if revisions else vms.by_index(UNOWNED, str(meta.key))
    return tuple(sorted(found, key=lambda each: ordinal_of(each.metadata.name, meta.name) or 0))


def orphaned_revisions_of(pool: ObjectKey, stores: Stores) -> tuple[ControllerRevision, ...]:
    """Return the revisions of a pool that no longer exists, if no controller owns them. Their names may have only the
    beginning of the pool's name.

    The garbage collector does not delete such revisions. They stay if the pool was deleted with `--cascade=orphan`, and
    the cache showed the removal of the owner reference only after the pool was gone.
    """
    former = stores.revisions.by_index(FORMER_POOL, _beginning(pool))
    return tuple(each for each in former if not stores.pools.by_index(UID, labels_of(each.metadata)[POOL_UID]))


def _has_left(owner: OwnerReference | None, pool: ObjectMeta, pools: Resource[Pool]) -> bool:
    if owner is None or owner.kind != POOL_KIND:
        return True
    # A pool in another API group belongs to another controller. That pool may still exist.
    same_group = owner.api_version.partition("/")[0] == pools.group
    return same_group and owner.name == pool.name and owner.uid != pool.uid
