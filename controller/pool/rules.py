"""The rules of VirtualMachinePools, with the interface that the reconciler calls."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from controller.apimachinery.indexes import NamesInUse, owned_by
from controller.kubevirt.annotations import is_to_be_paused
from controller.kubevirt.delicate import UNREADABLE, delicate_reason, reason_to_keep
from controller.kubevirt.live_updates import RolloutSettings, asks_for_restart, unapplied
from controller.kubevirt.pool_types import Pool
from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import Migration
from controller.kubevirt.vms import is_deleting
from controller.pool import plan as plans
from controller.pool import status
from controller.pool.leaving.claims import plan_strays
from controller.pool.members.rosters import PoolRosters
from controller.pool.members.snapshot import (
    FORMER_POOL_UID,
    Limits,
    Snapshot,
    Stores,
    orphaned_revisions_of,
    strays_of,
    unowned_of,
)
from controller.pool.rollout.live import LiveChanges
from controller.pool.spec.intent import asks_for_migrations, parse_intent
from controller.replicas.disruption_budget import BudgetCache
from controller.replicas.revisions import delete_revisions
from controller.runtime.actions import Delete, Patch, Pause, Plan, Restart
from controller.runtime.execute.births import Owner
from controller.runtime.execute.deletes import Found, Judge, Judged
from controller.runtime.execute.refusals import Refusals
from informers.meta import KubeObject, ObjectKey, ObjectMeta
from informers.resource import Resource
from informers.store import StoreView

T = TypeVar("T", bound=KubeObject)

_NO_VM: Final = VirtualMachine()


def obstacle(action: Judged, found: Found, now: datetime) -> str:
    """Return why the VM must not be deleted or rest now, or its VMI not be restarted, paused or get a label, or ""."""
    try:
        if isinstance(action, Patch) and action.resource is VMIS:
            return unapplied(found[VMS], found[VMIS]) if VMS in found and VMIS in found else "its instance is gone"
        vm, vmi = _decoded(VMS, found), _decoded(VMIS, found)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UNREADABLE
    if isinstance(action, Delete) and action.resource is VMS:
        return reason_to_keep(vm or _NO_VM, vmi, now)
    if isinstance(action, Pause) and (vm is None or is_deleting(vm) or not is_to_be_paused(vm.metadata)):
        return "it is no standby any more"
    member = action.member if isinstance(action, Delete | Restart) else None
    if member is not None and member.must_ask and not asks_for_restart(vm or _NO_VM):
        return "KubeVirt does not ask for its restart any more"
    return delicate_reason(vm or _NO_VM, vmi, now, may_interrupt_resizing=True)


def _decoded(resource: Resource[T], found: Found) -> T | None:
    return resource.decode(found[resource]) if resource in found else None


JUDGE: Final = Judge((VMS, VMIS), obstacle)


class PoolRules(Struct, frozen=True):
    judge = JUDGE
    plan = staticmethod(plans.plan)
    next_status = staticmethod(status.next_status)
    transition_notices = staticmethod(status.transition_notices)
    outcome_notices = staticmethod(status.outcome_notices)
    parse_intent = staticmethod(parse_intent)

    stores: Stores
    resource: Resource[Pool]
    limits: Limits
    rosters: PoolRosters
    refusals: Refusals
    live: LiveChanges = LiveChanges(RolloutSettings)
    budgets: BudgetCache = BudgetCache()
    migrations: StoreView[Migration] | None = None

    @property
    def owners(self) -> StoreView[Pool]:
        return self.stores.pools

    def prepare(self, key: ObjectKey, *, now: datetime) -> Iterator[object]:
        owner = self.owners.get(key)
        return iter(()) if owner is None else self.rosters.prepare(owner.metadata, now, self.refusals.notes)

    def take_snapshot(self, key: ObjectKey, *, now: datetime, settled: bool) -> Snapshot | None:
        owner, stores = self.owners.get(key), self.stores
        if owner is None:
            return None
        members = self.rosters.read(owner.metadata, now, self.refusals.notes)
        revisions, unowned = (owned_by(owner.metadata, stores.revisions, *index) for index in ((), (FORMER_POOL_UID,)))
        if owner.metadata.deletion_timestamp is None:
            revisions += unowned  # a user has removed the owner
        migrates = self.limits.migrations and asks_for_migrations(owner)
        return Snapshot(
            owner=owner,
            members=members,
            strays=strays_of(owner.metadata, stores, self.resource),
            revisions=revisions,
            orphaned_revisions=unowned,
            unowned=unowned_of(owner, revisions, stores.vms),
            taken=NamesInUse(key.namespace, stores.vms.keys(key.namespace)),
            revision_names=NamesInUse(key.namespace, stores.revisions.keys(key.namespace)),
            now=now,
            settled=settled,
            limits=self.limits,
            pools=self.resource,
            refused=self.refusals.waiting(Owner(key, owner.metadata.uid, owner.metadata.generation), (VMS, VMIS), now),
            live=self.live.follow(key, members, now, migrates=migrates),
            budgets=self.budgets.read(self.resource, owner),
            migrations=owned_by(owner.metadata, self.migrations) if self.migrations is not None else None,
        )

    def plan_absent(self, key: ObjectKey) -> Plan:
        self.rosters.forget(key)
        self.live.forget(key)
        pool = ObjectMeta(namespace=key.namespace, name=key.name)
        of_vms = plan_strays(strays_of(pool, self.stores, self.resource), burst=self.limits.burst)
        orphaned = orphaned_revisions_of(key, self.stores)
        of_revisions = delete_revisions(orphaned, "its pool does not exist any more", burst=self.limits.burst)
        return Plan(stages=(*of_vms.stages, *of_revisions))
