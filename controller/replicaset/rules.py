"""The rules of VirtualMachineInstanceReplicaSets, with the interface that the reconciler calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from controller.apimachinery.indexes import NamesInUse
from controller.kubevirt.delicate import UNREADABLE, reason_to_keep_vmi
from controller.kubevirt.replicaset_types import ReplicaSet, ReplicaSetStatus
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicaset.history import RevisionCache
from controller.replicaset.plan import plan
from controller.replicaset.revisions import delete_orphaned
from controller.replicaset.rolling_update import max_unavailable, rolls_out
from controller.replicaset.rosters import VMIRosters
from controller.replicaset.snapshot import ORPHAN_NAMESPACE, Snapshot
from controller.replicaset.status import next_status, outcome_notices, transition_notices
from controller.runtime.actions import Delete, Notice, Outcome, Patch, Plan, Restart
from controller.runtime.execute.deletes import Found, Judge
from informers.meta import ObjectKey
from informers.resource import Resource
from informers.store import StoreView


def obstacle(action: Delete | Restart | Patch, found: Found, now: datetime) -> str:
    """Return the reason why the VMI must not be deleted now, or ""."""
    try:
        return reason_to_keep_vmi(action.resource.decode(found[action.resource]), now)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UNREADABLE


JUDGE: Final = Judge((), obstacle)


class ReplicaSetRules(NamedTuple):
    """The functions that the reconciler calls for replica sets. They implement `runtime.reconciler.Rules`.

    One reconciliation sends at most `burst` create requests and at most `burst` delete requests (R4, R6). A set gets at
    most `max_replicas` VMIs; 0 means no limit. Without `revisions`, sets keep no history (R17).
    """

    owners: StoreView[ReplicaSet]
    vmis: StoreView[VirtualMachineInstance]
    resource: Resource[ReplicaSet]
    vmi_resource: Resource[VirtualMachineInstance]
    rosters: VMIRosters
    burst: int
    max_replicas: int = 0
    revisions: RevisionCache | None = None

    @property
    def judge(self) -> Judge:
        return JUDGE

    def prepare(self, key: ObjectKey, *, now: datetime) -> Iterator[object]:
        owner = self.owners.get(key)
        return iter(()) if owner is None else self.rosters.prepare(owner.metadata)

    def take_snapshot(self, key: ObjectKey, *, now: datetime, settled: bool) -> Snapshot | None:
        owner = self.owners.get(key)
        if owner is None:
            return None
        return Snapshot(
            owner=owner,
            members=self.rosters.read(owner.metadata),
            orphans=tuple(self.vmis.by_index(ORPHAN_NAMESPACE, key.namespace)),
            taken=NamesInUse(self.vmis, key.namespace),
            now=now,
            settled=settled,
            burst=self.burst,
            replicasets=self.resource,
            vmis=self.vmi_resource,
            max_replicas=self.max_replicas,
            history=self.revisions.history_of(owner.metadata, now) if self.revisions is not None else None,
        )

    def plan(self, snapshot: Snapshot) -> Plan:
        return plan(snapshot)

    def plan_absent(self, key: ObjectKey) -> Plan:
        """Return a plan that deletes revisions without an owner (R17). The plan changes nothing else, because the
        garbage collector deletes the VMIs (R15).
        """
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
