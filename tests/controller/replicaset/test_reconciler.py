"""The reconciler of one set: stale caches, lost answers, rejected writes, and the status."""

import asyncio

import pytest
from structlog.testing import capture_logs

from controller.kubevirt.resources import VMIS
from controller.runtime.result import LOOK_AGAIN_S, After, AwaitChange, Retry
from controller.runtime.settle.history_writer import COLLECT_S
from controller.runtime.settle.status_writer import ABSENT_S, SHORTEST_CONFLICT_S
from informers.errors import TransportError
from tests.builders import REPLICASETS
from tests.controller.replicaset.simulation import KEY, ReplicaSetSimulation, replicaset_document, vmi_document
from tests.fakes.requests import Garbled, Lost, refusal

pytestmark = pytest.mark.looptime

UNREACHABLE = TransportError("cannot connect: Connection refused", sent=False)
BROKEN = refusal(500, "InternalError", "etcdserver: request timed out")
FORBIDDEN = refusal(403, "Forbidden", "not allowed")


def simulation_with_a_set(*, replicas: int = 3, **spec: object) -> ReplicaSetSimulation:
    simulation = ReplicaSetSimulation()
    simulation.server.put(REPLICASETS, replicaset_document(replicas=replicas, **spec))
    simulation.store_template()
    simulation.process.catch_up()
    return simulation


async def simulation_at_rest(*, replicas: int = 3) -> ReplicaSetSimulation:
    simulation = simulation_with_a_set(replicas=replicas)
    await simulation.come_to_rest()
    simulation.server.requests.clear()
    simulation.process.recorder.published.clear()
    return simulation


async def test_r9_while_the_cache_is_behind_nothing_is_created_and_the_status_is_written():
    simulation = simulation_with_a_set()
    await simulation.reconcile()
    simulation.vmis.catch_up(2)
    simulation.sets.catch_up()
    report = await simulation.reconcile()
    assert simulation.sent("create") == 3
    assert report.result == After(LOOK_AGAIN_S)
    assert (simulation.process.counts["stale"], simulation.owner.status.replicas) == (1, 2)


async def test_r9_if_the_lookup_of_a_lost_create_fails_the_status_is_written_and_the_pass_is_retried():
    simulation = simulation_with_a_set(replicas=2)
    simulation.fail(Lost.AFTER, verb="create", times=1)
    await simulation.reconcile()
    simulation.server.change(REPLICASETS, KEY, {"spec": {"replicas": 4}})
    simulation.sets.catch_up()
    simulation.fail(refusal(429, "TooManyRequests", "too many requests", retry_after_s=7), verb="get")
    report = await simulation.reconcile()
    assert report.result == Retry("too many requests", not_before_s=7.0, outage=True)
    assert report.facts["failure"] == "too many requests"
    assert simulation.sent("create") == 1
    assert simulation.owner.status.observed_generation == 2


async def test_r10_nothing_is_retried_in_a_namespace_that_is_being_deleted():
    simulation = simulation_with_a_set(replicas=3)
    simulation.server.terminating.add("default")
    report = await simulation.reconcile()
    assert isinstance(report.result, After)
    assert COLLECT_S - 0.1 < report.result.seconds <= COLLECT_S, "only the history waits"
    assert simulation.sent("create") == 1


async def test_r1_an_invalid_spec_is_logged_and_reported_and_nothing_is_created():
    simulation = simulation_with_a_set(selector={})
    with capture_logs() as logs:
        report = await simulation.reconcile()
    assert isinstance(report.result, After)
    assert COLLECT_S - 0.1 < report.result.seconds <= COLLECT_S, "only the history waits"
    assert [(line["log_level"], line["event"]) for line in logs] == [("error", "invalid spec, no action is taken")]
    assert simulation.reasons == ["InvalidSpec"]
    assert simulation.sent("create") == 0


@pytest.mark.parametrize("waits_for", ["the status before", "a newer version"])
async def test_r11_a_status_that_has_to_wait_is_written_later(waits_for: str):
    simulation = simulation_with_a_set(replicas=0)
    if waits_for == "the status before":
        await simulation.reconcile()
    else:
        simulation.server.change(REPLICASETS, KEY, {"spec": {"replicas": 0, "paused": False}})
    assert (await simulation.reconcile()).result == After(LOOK_AGAIN_S)


async def test_r11_a_status_is_never_written_to_another_set_of_the_same_name():
    """The API server ignores the UID in a status patch. So only the resourceVersion protects a new set with the same
    name.
    """
    simulation = await simulation_at_rest(replicas=2)
    simulation.server.remove(VMIS, simulation.members[0].metadata.key)
    simulation.vmis.catch_up()
    simulation.server.remove(REPLICASETS, KEY)
    simulation.server.put(REPLICASETS, replicaset_document(replicas=5))
    await simulation.reconcile()
    assert simulation.sent("patch", REPLICASETS) == 1
    assert simulation.owner.status is None


@pytest.mark.parametrize("fault", [UNREACHABLE, Lost.BEFORE, Lost.AFTER, Garbled(), BROKEN, FORBIDDEN])
async def test_r11_a_failed_status_write_is_retried_and_the_report_has_all_facts_of_the_pass(fault):
    simulation = simulation_with_a_set(replicas=1)
    simulation.fail(fault, resource=REPLICASETS)
    report = await simulation.reconcile()
    assert isinstance(report.result, Retry)
    assert report.facts["create_done"] == 1
    assert report.facts["failure"]
    simulation.heal()
    await asyncio.sleep(SHORTEST_CONFLICT_S)
    await simulation.come_to_rest()
    assert simulation.owner.status.replicas == 1


async def test_r8_a_pause_is_reported_after_it_is_in_the_status():
    simulation = await simulation_at_rest(replicas=1)
    simulation.server.change(REPLICASETS, KEY, {"spec": {"paused": True, "replicas": 3}})
    simulation.process.catch_up()
    simulation.fail(UNREACHABLE, verb="patch", times=1)
    await simulation.reconcile()
    assert simulation.reasons == []
    await simulation.come_to_rest()
    assert simulation.reasons == ["SuccessfulPaused"]
    assert len(simulation.active) == 1
    simulation.server.change(REPLICASETS, KEY, {"spec": {"paused": None}})
    await simulation.come_to_rest()
    assert "SuccessfulResumed" in simulation.reasons
    assert len(simulation.active) == 3


async def test_r2_a_set_that_is_being_deleted_adopts_nothing_even_if_the_cache_is_stale():
    simulation = simulation_with_a_set(replicas=3)
    simulation.server.put(VMIS, vmi_document("orphan"))
    simulation.process.catch_up()
    simulation.server.change(REPLICASETS, KEY, {"metadata": {"finalizers": ["foregroundDeletion"]}})
    simulation.server.remove(REPLICASETS, KEY)
    await simulation.reconcile()
    assert simulation.members == []
    assert simulation.sent("patch") == 0


async def test_a_set_that_goes_during_a_pass_leaves_nothing_to_its_successor():
    simulation = simulation_with_a_set(replicas=1)

    def replace_set() -> None:
        simulation.server.remove(REPLICASETS, KEY)
        simulation.server.put(REPLICASETS, replicaset_document(replicas=1))
        simulation.sets.catch_up()

    simulation.process.counts.on_plan = replace_set
    await simulation.reconcile()
    assert simulation.process.counts["owner gone"] == 1


async def test_r9_the_vmis_of_a_set_that_is_gone_are_not_created_again_and_again():
    """The cache shows the deletion of the set late. The garbage collector deletes each VMI of the set at once."""
    simulation = await simulation_at_rest()
    simulation.server.remove(REPLICASETS, KEY)
    for _ in range(10):
        simulation.vmis.catch_up()
        for vmi in tuple(simulation.vmis.store.values()):
            simulation.server.remove(VMIS, vmi.metadata.key)
        simulation.vmis.catch_up()
        await simulation.reconcile()
    assert simulation.sent("create") == 3
    assert simulation.sent("patch", REPLICASETS) == 1
    assert (await simulation.reconcile()).result == After(ABSENT_S)
    simulation.process.catch_up()
    assert (await simulation.reconcile()).result == AwaitChange()


@pytest.mark.parametrize("exists", [True, False])
async def test_r4b_no_vmi_is_created_for_a_set_that_is_gone_and_whose_cache_does_not_show_it(exists: bool):
    made = ReplicaSetSimulation()
    made.server.put(REPLICASETS, replicaset_document(replicas=1))
    made.process.catch_up()
    await made.reconcile()
    if not exists:
        made.server.remove(REPLICASETS, KEY)
    for name in [*made.server.documents(VMIS)]:
        made.server.remove(VMIS, KEY._replace(name=name))
    made.vmis.catch_up()
    made.revisions.catch_up()
    made.process.rules.refusals.births.in_doubt.add(made.sets.store.get(KEY).metadata.uid)
    await made.reconcile()
    assert len(made.server.documents(VMIS)) == exists
