"""Assembles the controller of replica sets from its caches, queue and rules."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from controller.apimachinery.label_selectors import SelectorCache
from controller.assembly import Assembly, Cache, Parts, queue_of, wakes
from controller.assembly import assemble as assemble_kind
from controller.config.settings import Config
from controller.kinds import REPLICA_SETS
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.kubevirt.resources import CONTROLLER_REVISIONS, DISRUPTION_BUDGETS, VMIS
from controller.kubevirt.vmis import became_ready_at, was_never_ready
from controller.metrics.readiness import ReadyTimer
from controller.replicas.catalogue import without_foreign_annotations
from controller.replicas.disruption_budget import BudgetCache
from controller.replicas.revisions import kept_revision
from controller.replicas.triggers import wakes_of_owner
from controller.replicaset.rosters import VMIRosters
from controller.replicaset.rules import ReplicaSetRules
from controller.replicaset.snapshot import REPLICASET_INDEXES, REVISION_INDEXES, VMI_INDEXES, RevisionCache
from controller.replicaset.triggers import replicasets_of_revision, replicasets_of_vmi
from controller.runtime.actions import AnyResource
from informers.resource import Resource
from informers.store import Store, StoreView

CACHES: Final = {
    VMIS: Cache(VMI_INDEXES, without_foreign_annotations),
    CONTROLLER_REVISIONS: Cache(REVISION_INDEXES, kept_revision, is_optional=True),
}
OWNER_CACHE: Final = Cache(REPLICASET_INDEXES, without_foreign_annotations)


def rules_of(
    config: Config,
    resource: Resource[ReplicaSet],
    owners: StoreView[ReplicaSet],
    stores: Mapping[AnyResource, StoreView[Any]],
) -> ReplicaSetRules:
    """`stores` has the store of each resource in `CACHES`. Without one of revisions, sets have no revision."""
    vmis, stored = stores[VMIS], stores.get(CONTROLLER_REVISIONS, Store(indexes=REVISION_INDEXES))
    revisions = RevisionCache(stored, config.revision_history)
    budgets = BudgetCache(stores.get(DISRUPTION_BUDGETS), is_off=not config.disruption_budgets)
    rosters = VMIRosters(vmis)
    rules = ReplicaSetRules(owners, vmis, resource, rosters, revisions, config.burst, config.max_replicas, budgets)
    vmis.follow(rules.refusals)
    return rules


def assemble(parts: Parts) -> Assembly:
    resource = parts.config.resource_of(REPLICA_SETS)
    sets, vmis, revisions = parts.informer(resource, OWNER_CACHE), parts.cache(VMIS), parts.cache(CONTROLLER_REVISIONS)
    queue = queue_of(parts, REPLICA_SETS)
    sets.add_handler(wakes(queue, wakes_of_owner))
    selectors = SelectorCache()
    vmis.add_handler(wakes(queue, lambda change: replicasets_of_vmi(change, sets.store, selectors)))
    revisions.add_handler(wakes(queue, replicasets_of_revision))
    observe = partial(parts.metrics.became_ready, REPLICA_SETS.kind)
    vmis.add_handler(ReadyTimer(REPLICA_SETS.kind, sets.store, was_never_ready, became_ready_at, observe).handle)
    rules = rules_of(parts.config, resource, sets.store, parts.stores)
    vmis.add_handler(rules.gone.handle)
    return assemble_kind(parts, REPLICA_SETS, rules, queue, owners=sets, written=[sets, vmis, revisions])
