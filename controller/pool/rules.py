"""The rules of VirtualMachinePools, bound to the caches that they look at."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from controller.kubevirt.pool_types import Pool
from controller.kubevirt.status_patch import status_patch
from controller.pool.claims import plan_left_behind
from controller.pool.plan import plan
from controller.pool.rollout import rolls_out
from controller.pool.snapshot import Limits, Snapshot, Stores, recounted, strays_of, take_snapshot
from controller.pool.status import next_status, outcome_notices, transition_notices
from controller.runtime.plan import Notice, Outcome, Plan
from controller.runtime.reconciler import StatusUpdate
from informers.meta import ObjectKey, ObjectMeta
from informers.resource import Resource
from informers.store import StoreView

NAME = "pool"


class PoolRules(NamedTuple):
    stores: Stores
    resource: Resource[Pool]
    limits: Limits
    name: str = NAME
    component: str = "virtualmachinepool-controller"

    @property
    def owners(self) -> StoreView[Pool]:
        return self.stores.pools

    def take_snapshot(self, key: ObjectKey, *, now: datetime, settled: bool) -> Snapshot | None:
        return take_snapshot(self.stores, key, now=now, settled=settled, limits=self.limits, pools=self.resource)

    def plan(self, snapshot: Snapshot) -> Plan:
        return plan(snapshot)

    def plan_absent(self, key: ObjectKey) -> Plan:
        gone = ObjectMeta(namespace=key.namespace, name=key.name)
        return plan_left_behind(strays_of(gone, self.stores.vms, self.resource), burst=self.limits.burst)

    def recounted(self, planned: Snapshot, latest: Snapshot) -> Snapshot | None:
        return recounted(planned, latest)

    def status_update(self, snapshot: Snapshot, outcomes: tuple[Outcome, ...]) -> StatusUpdate | None:
        status = next_status(snapshot, outcomes)
        body = status_patch(snapshot.owner, status)
        return None if body is None else StatusUpdate(body, transition_notices(snapshot.owner.status, status))

    def outcome_notices(self, outcomes: Iterable[Outcome]) -> tuple[Notice, ...]:
        return outcome_notices(outcomes)

    def rolls_out(self, owner: Pool) -> bool:
        return rolls_out(owner)
