"""The pure functions for VirtualMachinePools, together with the caches that the functions read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from controller.kubevirt.pool_types import Pool, PoolStatus
from controller.pool.claims import plan_left_behind
from controller.pool.plan import plan
from controller.pool.rollout import rolls_out
from controller.pool.snapshot import Limits, Snapshot, Stores, strays_of, take_snapshot
from controller.pool.status import next_status, outcome_notices, transition_notices
from controller.runtime.plan import Notice, Outcome, Plan
from informers.meta import ObjectKey, ObjectMeta
from informers.resource import Resource
from informers.store import StoreView


class PoolRules(NamedTuple):
    """The functions that the reconciler calls for pools."""

    stores: Stores
    resource: Resource[Pool]
    limits: Limits

    @property
    def owners(self) -> StoreView[Pool]:
        return self.stores.pools

    def take_snapshot(self, key: ObjectKey, *, now: datetime, settled: bool) -> Snapshot | None:
        return take_snapshot(self.stores, key, now=now, settled=settled, limits=self.limits, pools=self.resource)

    def plan(self, snapshot: Snapshot) -> Plan:
        return plan(snapshot)

    def plan_absent(self, key: ObjectKey) -> Plan:
        pool = ObjectMeta(namespace=key.namespace, name=key.name)
        return plan_left_behind(strays_of(pool, self.stores.vms, self.resource), burst=self.limits.burst)

    def next_status(self, snapshot: Snapshot, outcomes: tuple[Outcome, ...]) -> PoolStatus:
        return next_status(snapshot, outcomes)

    def transition_notices(self, old: PoolStatus | None, new: PoolStatus) -> tuple[Notice, ...]:
        return transition_notices(old, new)

    def outcome_notices(self, outcomes: Iterable[Outcome]) -> tuple[Notice, ...]:
        return outcome_notices(outcomes)

    def rolls_out(self, owner: Pool) -> bool:
        return rolls_out(owner)
