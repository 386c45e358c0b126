"""The rules of VirtualMachinePools, with the interface that the reconciler calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from controller.kubevirt.pool_types import Pool, PoolStatus
from controller.pool.leaving.claims import plan_orphaned
from controller.pool.leaving.judge import JUDGE
from controller.pool.members import revisions
from controller.pool.members.rosters import PoolRosters
from controller.pool.members.snapshot import Limits, Snapshot, Stores, revisions_left_behind, strays_of, take_snapshot
from controller.pool.plan import plan
from controller.pool.rollout.limits import rolls_out
from controller.pool.spec.intent import max_unavailable
from controller.pool.status import next_status, outcome_notices, transition_notices
from controller.runtime.actions import Notice, Outcome, Plan
from controller.runtime.execute.deletes import Judge
from controller.runtime.execute.refusals import Refusals
from informers.meta import ObjectKey, ObjectMeta
from informers.resource import Resource
from informers.store import StoreView


class PoolRules(NamedTuple):
    """The functions that the reconciler calls for pools."""

    stores: Stores
    resource: Resource[Pool]
    limits: Limits
    rosters: PoolRosters
    refusals: Refusals

    @property
    def owners(self) -> StoreView[Pool]:
        return self.stores.pools

    @property
    def judge(self) -> Judge:
        return JUDGE

    def prepare(self, key: ObjectKey, *, now: datetime) -> Iterator[object]:
        owner = self.owners.get(key)
        return iter(()) if owner is None else self.rosters.prepare(owner.metadata, now)

    def take_snapshot(self, key: ObjectKey, *, now: datetime, settled: bool) -> Snapshot | None:
        return take_snapshot(
            self.stores,
            key,
            now=now,
            settled=settled,
            limits=self.limits,
            pools=self.resource,
            rosters=self.rosters,
            refused=self.refusals.waiting(key, now),
        )

    def plan(self, snapshot: Snapshot) -> Plan:
        return plan(snapshot)

    def plan_absent(self, key: ObjectKey) -> Plan:
        self.rosters.forget(key)
        self.refusals.forget(key)
        pool = ObjectMeta(namespace=key.namespace, name=key.name)
        of_vms = plan_orphaned(strays_of(pool, self.stores.vms, self.resource), burst=self.limits.burst)
        of_revisions = revisions.plan_left_behind(revisions_left_behind(key, self.stores), burst=self.limits.burst)
        return Plan(stages=(*of_vms.stages, *of_revisions.stages))

    def observe(self, key: ObjectKey, outcomes: Iterable[Outcome], *, now: datetime) -> None:
        self.refusals.observe(key, outcomes, now)

    def next_status(self, snapshot: Snapshot, outcomes: tuple[Outcome, ...]) -> PoolStatus:
        return next_status(snapshot, outcomes)

    def transition_notices(self, old: PoolStatus | None, new: PoolStatus) -> tuple[Notice, ...]:
        return transition_notices(old, new)

    def outcome_notices(self, outcomes: Iterable[Outcome]) -> tuple[Notice, ...]:
        return outcome_notices(outcomes)

    def rolls_out(self, owner: Pool) -> bool:
        return rolls_out(owner)

    def max_unavailable(self, owner: Pool) -> int | None:
        return max_unavailable(owner)
