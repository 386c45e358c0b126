"""The rules of VirtualMachineInstanceReplicaSets, with the interface that the reconciler calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from controller.kubevirt.replicaset_types import ReplicaSet, ReplicaSetStatus
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicaset.history import RevisionCache
from controller.replicaset.judge import JUDGE
from controller.replicaset.plan import plan
from controller.replicaset.revisions import delete_orphaned
from controller.replicaset.rollout import max_unavailable, rolls_out
from controller.replicaset.snapshot import Snapshot, VMIRosters, take_snapshot
from controller.replicaset.status import next_status, outcome_notices, transition_notices
from controller.runtime.actions import Notice, Outcome, Plan
from controller.runtime.execute.deletes import Judge
from informers.meta import ObjectKey
from informers.resource import Resource
from informers.store import StoreView


class ReplicaSetRules(NamedTuple):
    """The functions that the reconciler calls for replica sets. They implement `runtime.reconciler.Rules`.

    One reconciliation sends at most `burst` create requests and at most `burst` delete requests (R4, R6). A set gets at
    most `max_replicas` VMIs; 0 means no limit. Without `revisions`, sets keep no history (R17).
    """

    owners: StoreView[ReplicaSet]
    vmis: StoreView[VirtualMachineInstance]
    resource: Resource[ReplicaSet]
    vmi_resource: Resource[VirtualMachineInstance]
    burst: int
    max_replicas: int = 0
    revisions: RevisionCache | None = None
    rosters: VMIRosters | None = None

    @property
    def judge(self) -> Judge:
        return JUDGE

    def prepare(self, key: ObjectKey, *, now: datetime) -> Iterator[object]:
        owner = self.owners.get(key)
        return iter(()) if owner is None or self.rosters is None else self.rosters.prepare(owner.metadata)

    def take_snapshot(self, key: ObjectKey, *, now: datetime, settled: bool) -> Snapshot | None:
        snapshot = take_snapshot(
            self.owners,
            self.vmis,
            key,
            now=now,
            settled=settled,
            burst=self.burst,
            replicaset_resource=self.resource,
            vmi_resource=self.vmi_resource,
            max_replicas=self.max_replicas,
            rosters=self.rosters,
        )
        if snapshot is None or self.revisions is None:
            return snapshot
        return replace(snapshot, history=self.revisions.history_of(snapshot.owner.metadata, now))

    def plan(self, snapshot: Snapshot) -> Plan:
        return plan(snapshot)

    def plan_absent(self, key: ObjectKey) -> Plan:
        """Return a plan that deletes revisions without an owner (R17). The plan changes nothing else, because the
        garbage collector deletes the VMIs (R15).
        """
        if self.rosters is not None:
            self.rosters.forget(key)
        orphaned = self.revisions.orphaned(key) if self.revisions is not None else ()
        return delete_orphaned(orphaned, burst=self.burst)

    def observe(self, key: ObjectKey, outcomes: Iterable[Outcome], *, now: datetime) -> None:
        pass  # A set changes no VMI. It creates and deletes VMIs.

    def next_status(self, snapshot: Snapshot, outcomes: tuple[Outcome, ...]) -> ReplicaSetStatus:
        return next_status(snapshot, outcomes)

    def transition_notices(self, old: ReplicaSetStatus | None, new: ReplicaSetStatus) -> tuple[Notice, ...]:
        return transition_notices(old, new)

    def outcome_notices(self, outcomes: Iterable[Outcome]) -> tuple[Notice, ...]:
        return outcome_notices(outcomes)

    def rolls_out(self, owner: ReplicaSet) -> bool:
        return rolls_out(owner)

    def max_unavailable(self, owner: ReplicaSet) -> int | None:
        return max_unavailable(owner)
