"""The reconciler's interface `Rules`, implemented for VirtualMachineFlocks."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.runtime.actions import Notice, Outcome, Plan
from controller.runtime.execute.deletes import NO_JUDGE, Judge
from controller.runtime.execute.refusals import Refusals
from informers.meta import ObjectKey
from informers.resource import Resource
from informers.store import StoreView
from tests.examples.flock.plan import plan
from tests.examples.flock.snapshot import Snapshot, take_snapshot
from tests.examples.flock.status import next_status, outcome_notices
from tests.examples.flock.types import Flock, FlockStatus


class FlockRules(NamedTuple):
    owners: StoreView[Flock]
    vmis: StoreView[VirtualMachineInstance]
    resource: Resource[Flock]
    refusals: Refusals

    @property
    def judge(self) -> Judge:
        return NO_JUDGE

    def prepare(self, key: ObjectKey, *, now: datetime) -> Iterator[object]:
        return iter(())

    def take_snapshot(self, key: ObjectKey, *, now: datetime, settled: bool) -> Snapshot | None:
        return take_snapshot(self.owners, self.vmis, key, settled=settled, resource=self.resource)

    def plan(self, snapshot: Snapshot) -> Plan:
        return plan(snapshot)

    def plan_absent(self, key: ObjectKey) -> Plan:
        return Plan()

    def next_status(self, snapshot: Snapshot, outcomes: tuple[Outcome, ...], waits: object) -> FlockStatus:
        return next_status(snapshot)

    def transition_notices(self, old: FlockStatus | None, new: FlockStatus) -> tuple[Notice, ...]:
        return ()

    def outcome_notices(self, outcomes: Iterable[Outcome]) -> tuple[Notice, ...]:
        return outcome_notices(outcomes)

    def parse_intent(self, owner: Flock) -> Flock:
        return owner
