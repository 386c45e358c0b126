"""The rules of VirtualMachineInstanceReplicaSets, with the interface that the reconciler calls."""

from collections.abc import Iterator
from datetime import datetime

import msgspec
from msgspec import Struct, field

from controller.apimachinery.label_selectors import Selector
from controller.kubevirt.delicate import UNREADABLE, reason_to_keep_vmi
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicas.disruption_budget import BudgetCache
from controller.replicas.revisions import delete_revisions
from controller.replicaset import plan as plans
from controller.replicaset import status
from controller.replicaset.claims import release, strays_of
from controller.replicaset.intent import parse_intent
from controller.replicaset.own_hashes import with_own_hashes
from controller.replicaset.revisions import ORPHANED
from controller.replicaset.rosters import VMIRosters
from controller.replicaset.snapshot import ORPHAN, GoneNames, RevisionCache, Snapshot, orphans_of
from controller.runtime.actions import Plan, stage_of
from controller.runtime.execute.deletes import Found, Judge, Judged
from controller.runtime.execute.refusals import Refusals
from informers.meta import ObjectKey
from informers.resource import Resource
from informers.store import StoreView


def obstacle(action: Judged, found: Found, now: datetime) -> str:
    try:
        return reason_to_keep_vmi(action.resource.decode(found[action.resource]), now)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UNREADABLE


class ReplicaSetRules(Struct, frozen=True):
    """`burst` limits the creates and the deletes of a reconciliation (R4, R6), `max_replicas` the VMIs, if not 0."""

    judge = Judge((), obstacle)
    plan = staticmethod(plans.plan)
    next_status = staticmethod(status.next_status)
    transition_notices = staticmethod(status.transition_notices)
    outcome_notices = staticmethod(status.outcome_notices)
    parse_intent = staticmethod(parse_intent)

    owners: StoreView[ReplicaSet]
    vmis: StoreView[VirtualMachineInstance]
    resource: Resource[ReplicaSet]
    rosters: VMIRosters
    revisions: RevisionCache
    burst: int
    max_replicas: int = 0
    budgets: BudgetCache = BudgetCache()
    gone: GoneNames = field(default_factory=GoneNames)
    refusals: Refusals = field(default_factory=Refusals)

    def prepare(self, key: ObjectKey, *, now: datetime) -> Iterator[object]:
        owner = self.owners.get(key)
        return iter(()) if owner is None else self.rosters.prepare(owner.metadata, self.refusals.notes)

    def take_snapshot(self, key: ObjectKey, *, now: datetime, settled: bool) -> Snapshot | None:
        owner = self.owners.get(key)
        if owner is None:
            return None
        seen = Snapshot(
            owner=owner,
            members=self.rosters.read(owner.metadata, self.refusals.notes),
            orphans=orphans_of(owner, self.vmis),
            taken=self.gone.taken(self.vmis, key.namespace, now),
            now=now,
            settled=settled,
            burst=self.burst,
            replicasets=self.resource,
            max_replicas=self.max_replicas,
            history=self.revisions.history_of(owner.metadata, now),
            budgets=self.budgets.read(self.resource, owner),
        )
        return with_own_hashes(seen)

    def plan_absent(self, key: ObjectKey) -> Plan:
        """Delete revisions without an owner (R17), and take vmherd's notes off strays. Kubernetes does the rest."""
        self.rosters.forget(key)
        revisions = delete_revisions(self.revisions.orphaned(key), ORPHANED, burst=self.burst)
        patches = release(strays_of(key, self.vmis.by_index(ORPHAN, str(key))), Selector(), "")
        return Plan(stages=(*revisions, *stage_of(patches)))
