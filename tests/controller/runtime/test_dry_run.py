"""A dry run logs the actions of a plan once, counts them once, and never carries them out."""

from collections import Counter
from itertools import count
from typing import Any

import pytest
from msgspec import convert
from msgspec.structs import replace

from controller.kinds import REPLICA_SETS
from controller.kubevirt.replicaset_types import ReplicaSet, ReplicaSetStatus
from controller.replicaset.rosters import VMIRosters
from controller.replicaset.rules import ReplicaSetRules
from controller.replicaset.snapshot import REPLICASET_INDEXES, REVISION_INDEXES, VMI_INDEXES, RevisionCache
from controller.replicaset.status import next_status
from controller.runtime.dry_run import DryRunReconciler, forbid_writes
from controller.runtime.result import LISTED, AwaitChange, Report
from informers.errors import TransportError
from informers.meta import ObjectKey
from informers.store import Store
from tests.builders import NOW, REPLICASETS, reference_to, replicaset, snapshot, stored, vmi
from tests.fakes import stores


class Lookout:
    def __init__(self) -> None:
        self.sets: Store[ReplicaSet] = Store(indexes=REPLICASET_INDEXES)
        self.vmis: Store[Any] = Store(indexes=VMI_INDEXES)
        self.revisions: Store[Any] = Store(indexes=REVISION_INDEXES)
        self.versions = count(2)
        self.counted: Counter[tuple[str, str, str]] = Counter()
        kept = RevisionCache(self.revisions, 5)
        rules = ReplicaSetRules(self.sets, self.vmis, REPLICASETS, VMIRosters(self.vmis), kept, burst=250)
        self.onlooker = DryRunReconciler(REPLICA_SETS, rules, now=lambda: NOW, instruments=self)

    def acted(self, controller: str, *, action: str, outcome: str) -> None:
        self.counted[controller, action, outcome] += 1

    def show(self, owner: ReplicaSet | None, *vmis: Any) -> None:
        version = str(next(self.versions))
        owners = [] if owner is None else [owner]
        stores.replace(self.sets, [renewed(each, version) for each in owners], version)
        stores.replace(self.vmis, [renewed(each, version) for each in vmis], version)
        kept = [renewed(revision, version) for each in owners for revision in stored(each)]
        stores.replace(self.revisions, kept, version)

    async def look(self) -> Report:
        return await self.onlooker.reconcile(ObjectKey("default", "testreplicaset"))


def renewed(seen: Any, version: str) -> Any:
    return replace(seen, metadata=replace(seen.metadata, resource_version=version))


@pytest.fixture
def lookout() -> Lookout:
    return Lookout()


async def test_the_same_plan_is_logged_and_counted_once(lookout):
    lookout.show(replicaset(replicas=2))
    first = await lookout.look()
    assert first.facts
    assert [(await lookout.look()).facts for _ in range(3)] == [{}, {}, {}]
    assert lookout.counted.total() == 2


async def test_a_plan_that_returns_is_logged_again(lookout):
    owner = replicaset(replicas=1)
    lookout.show(owner)
    await lookout.look()
    child = vmi("testreplicaset-a", owners=(reference_to(owner),))
    lookout.show(replace(owner, status=next_status(snapshot(owner, [child]), ())), child)
    assert await lookout.look() == Report(AwaitChange(), {})
    lookout.show(owner)
    assert (await lookout.look()).facts["create_would"] == 1


async def test_a_long_plan_is_listed_in_part_and_counted_completely(lookout):
    lookout.show(replicaset(replicas=LISTED + 5))
    facts = (await lookout.look()).facts
    assert (len(facts["would"]), facts["and_more"], facts["create_would"]) == (LISTED, 5, LISTED + 5)


async def test_notices_are_logged_and_no_event_is_sent(lookout):
    lookout.show(replicaset(match_labels={"app": "other"}))
    facts = (await lookout.look()).facts
    assert any("InvalidSpec" in line for line in facts["would_report"])
    assert "invalid" in str(facts["held"])


async def test_a_deleted_set_is_not_reported(lookout):
    lookout.show(None)
    assert await lookout.look() == Report(AwaitChange(), {})


async def test_a_status_write_alone_is_reported_without_an_action(lookout):
    lookout.show(replicaset(replicas=0, status=convert({"replicas": 4}, ReplicaSetStatus)))
    assert (await lookout.look()).facts == {"would_write_status": True}


def test_the_gate_rejects_every_write():
    with pytest.raises(TransportError) as caught:
        forbid_writes()
    assert caught.value.sent is False
