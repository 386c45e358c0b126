"""Assembles the controller of VirtualMachinePools from its caches, queue and rules."""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

from controller.apimachinery.indexes import NAMESPACE, UID, by_namespace, by_uid
from controller.assembly import Assembly, Cache, Parts, on_removal, queue_of, wakes
from controller.assembly import assemble as assemble_kind
from controller.config.modes import Mode
from controller.config.settings import Config
from controller.kinds import POOLS
from controller.kubevirt.live_updates import RolloutSettings
from controller.kubevirt.pool_types import Pool
from controller.kubevirt.resources import CONTROLLER_REVISIONS, DISRUPTION_BUDGETS, MIGRATIONS, VMIS, VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import became_ready_at, was_never_ready
from controller.metrics.readiness import ReadyTimer
from controller.pool.members.rosters import PoolRosters
from controller.pool.members.snapshot import REVISION_INDEXES, VM_INDEXES, Limits, Stores
from controller.pool.rollout.live import LiveChanges
from controller.pool.rules import PoolRules
from controller.pool.triggers import pools_of_migration, pools_of_revision, pools_of_vm, pools_of_vmi
from controller.replicas.catalogue import without_foreign_annotations
from controller.replicas.disruption_budget import BUDGET_NAMESPACE, BudgetCache, by_budgeted_namespace
from controller.replicas.revisions import kept_revision
from controller.replicas.triggers import wakes_of_owner
from controller.runtime.actions import AnyResource
from controller.runtime.execute.refusals import Refusals
from informers.resource import Resource
from informers.store import StoreView

CACHES: Final = {
    VMIS: Cache({NAMESPACE: by_namespace}, without_foreign_annotations),
    VMS: Cache(VM_INDEXES, without_foreign_annotations),
    CONTROLLER_REVISIONS: Cache(REVISION_INDEXES, transform=kept_revision),
}
OWNER_CACHE: Final = Cache({UID: by_uid, BUDGET_NAMESPACE: by_budgeted_namespace}, without_foreign_annotations)


def rules_of(
    config: Config,
    resource: Resource[Pool],
    owners: StoreView[Pool],
    stores: Mapping[AnyResource, StoreView[Any]],
    rollout: Callable[[], RolloutSettings] = RolloutSettings,
) -> PoolRules:
    """Return the rules of pools. `stores` has the store of each resource in `CACHES`.

    The function `rollout` returns what the KubeVirt object says about changes of VMs that run.
    """
    limits = Limits(
        config.burst,
        config.revision_history,
        takes_over=config.mode == Mode.TAKEOVER,
        max_replicas=config.max_replicas,
        migrations=config.migrations,
    )
    vms, vmis = stores[VMS], stores[VMIS]
    caches = Stores(owners, vms, vmis, stores[CONTROLLER_REVISIONS])
    budgets = BudgetCache(stores.get(DISRUPTION_BUDGETS), is_off=not config.disruption_budgets)
    live, migrations = LiveChanges(rollout), stores.get(MIGRATIONS)
    refusals = Refusals()
    vms.follow(refusals)
    return PoolRules(caches, resource, limits, PoolRosters(vms, vmis), refusals, live, budgets, migrations)


def assemble(parts: Parts) -> Assembly:
    resource = parts.config.resource_of(POOLS)
    pools = parts.informer(resource, OWNER_CACHE)
    vms, vmis, revisions = parts.cache(VMS), parts.cache(VMIS), parts.cache(CONTROLLER_REVISIONS)
    queue = queue_of(parts, POOLS)
    pools.add_handler(wakes(queue, wakes_of_owner))
    vms.add_handler(wakes(queue, pools_of_vm))
    vmis.add_handler(wakes(queue, lambda change: pools_of_vmi(change, vms.store)))
    revisions.add_handler(wakes(queue, pools_of_revision))
    migrations = [parts.cache(MIGRATIONS)] if parts.config.migrations else []
    for informer in migrations:
        informer.add_handler(wakes(queue, pools_of_migration))

    def ready_at(vm: VirtualMachine) -> datetime | None:
        return became_ready_at(vm, vmis.store.get(vm.metadata.key))

    observe = partial(parts.metrics.became_ready, POOLS.kind)
    vms.add_handler(ReadyTimer(POOLS.kind, pools.store, was_never_ready, ready_at, observe).handle)
    rules = rules_of(parts.config, resource, pools.store, parts.stores, parts.rollout)
    pools.add_handler(on_removal(rules.rosters.forget))
    # A plan also patches the finalizers and the annotations of the pool itself.
    written = (pools, vms, vmis, revisions, *migrations)
    return assemble_kind(parts, POOLS, rules, queue, owners=pools, written=written)
