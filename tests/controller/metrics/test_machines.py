from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controller.kubevirt.pool_types import POOL_KIND as POOL
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS, VMS
from controller.metrics.machines import MachineCounts
from controller.metrics.objects import MachineTally
from controller.runtime.actions import (
    AlreadyThere,
    Cause,
    Create,
    Delete,
    Done,
    Missing,
    Outcome,
    Patch,
    Rejected,
    Skipped,
    ThreeWayMerge,
    Unknown,
)
from informers.errors import Forbidden, TransportError
from informers.meta import ObjectKey
from informers.objects import PatchType

KEY = ObjectKey("shop", "web")


SET = "VirtualMachineInstanceReplicaSet"
TALLY = (POOL, *KEY)
NO = Forbidden("no", code=403)


def create(resource: Any = VMS) -> Create:
    return Create(resource=resource, key=KEY, body=b"", owner_uid="u", why="missing")


def delete(resource: Any = VMS, cause: Cause = Cause.UNSPECIFIED) -> Delete:
    return Delete(resource=resource, key=KEY, uid="u", why="surplus", cause=cause)


def three_way_merge() -> ThreeWayMerge:
    return ThreeWayMerge(resource=VMS, key=KEY, uid="u", old=b"", new=b"", why="outdated")


class MetricsSetup:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.counts = MachineCounts(self.registry)

    def count(self, *outcomes: Outcome, controller: str = "pool", kind: str = POOL) -> None:
        self.counts.count(controller, kind, KEY, outcomes)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, {"controller": "pool", **labels})

    @property
    def all(self) -> float:
        samples = (sample for family in self.registry.collect() for sample in family.samples)
        return sum(sample.value for sample in samples if sample.name.endswith("_total"))


@pytest.fixture
def setup() -> MetricsSetup:
    return MetricsSetup()


@pytest.mark.parametrize(
    ("outcome", "verb", "kind", "result"),
    [
        (Done(create()), "created", "VirtualMachine", "success"),
        (AlreadyThere(create()), "created", "VirtualMachine", "success"),
        (Rejected(create(), NO), "created", "VirtualMachine", "error"),
        (Unknown(create(), TransportError("lost", sent=True)), "created", "VirtualMachine", "unknown"),
        (Done(create(VMIS)), "created", "VirtualMachineInstance", "success"),
        (Done(delete()), "deleted", "VirtualMachine", "success"),
        (Rejected(delete(VMIS), NO), "deleted", "VirtualMachineInstance", "error"),
        (Done(three_way_merge()), "updated", "VirtualMachine", "success"),
        (Rejected(three_way_merge(), NO), "updated", "VirtualMachine", "error"),
    ],
)
def test_a_write_is_counted_by_its_outcome(outcome: Outcome, verb: str, kind: str, result: str, setup: MetricsSetup):
    setup.count(outcome)
    assert setup.value(f"vmherd_vms_{verb}_total", kind=kind, result=result) == 1
    assert setup.all == 1


@pytest.mark.parametrize(
    "outcome",
    [
        Skipped(create()),
        Missing(delete()),
        Done(create(CONTROLLER_REVISIONS)),
        Done(Patch(resource=VMS, key=KEY, body=b"", type=PatchType.MERGE, why="adopt")),
    ],
)
def test_a_write_that_creates_or_deletes_no_vm_is_not_counted(outcome: Outcome, setup: MetricsSetup):
    setup.count(outcome)
    assert setup.all == 0
    assert setup.counts.tallies() == {}


def test_a_vm_that_is_deleted_because_it_fails_is_a_healing(setup: MetricsSetup):
    setup.count(Done(delete(cause=Cause.HEALING)), Rejected(delete(cause=Cause.HEALING), NO))
    assert setup.value("vmherd_healings_total") == 1
    assert setup.value("vmherd_vms_deleted_total", kind="VirtualMachine", result="success") == 1
    assert setup.counts.tallies() == {TALLY: MachineTally(started=0, stopped=1, healed=1)}


def test_a_pool_has_a_tally_of_the_successful_actions_on_its_vms(setup: MetricsSetup):
    setup.count(Done(create()), Done(create()), Rejected(create(), NO), Done(delete()), Done(delete(VMIS)))
    setup.count(Done(create()))
    assert setup.counts.tallies() == {TALLY: MachineTally(started=3, stopped=1)}


def test_the_tally_of_a_deleted_pool_is_removed(setup: MetricsSetup):
    setup.count(Done(create()))
    before = setup.counts.tallies()
    setup.counts.forget(SET, KEY)
    assert TALLY in setup.counts.tallies(), "a set of the same name is another object"
    setup.counts.forget(POOL, KEY)
    setup.counts.forget(POOL, KEY)
    assert setup.counts.tallies() == {}
    assert TALLY in before, "and a page that was taken before still has it"


def test_a_kind_without_counters_has_no_tally(setup: MetricsSetup):
    setup.count(Done(create(VMIS)), kind="VirtualMachineFlock")
    assert setup.counts.tallies() == {}


def test_the_counters_of_possible_actions_start_at_zero(setup: MetricsSetup):
    setup.counts.start("pool")
    setup.counts.start("replicaset")
    assert setup.value("vmherd_vms_created_total", kind="VirtualMachine", result="error") == 0
    assert setup.value("vmherd_vms_deleted_total", kind="VirtualMachineInstance", result="success") == 0
    assert setup.value("vmherd_healings_total") == 0
    assert (
        setup.value("vmherd_vms_created_total", controller="replicaset", kind="VirtualMachineInstance", result="error")
        == 0
    )
    assert setup.value("vmherd_healings_total", controller="replicaset") is None
