"""The reconciler of one set, pass by pass: stale caches, lost answers, rejected writes, and the status."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from controller.kubevirt.resources import VMIS
from controller.runtime.result import LOOK_AGAIN_S, After, AwaitChange, Retry
from informers.errors import TransportError
from tests.builders import REPLICASETS
from tests.controller.replicaset.site import KEY, Site, replicaset_document, vmi_document
from tests.fakes.requests import Garbled, Lost, refusal

pytestmark = pytest.mark.looptime

UNREACHABLE = TransportError("cannot connect: Connection refused", sent=False)
BROKEN = refusal(500, "InternalError", "etcdserver: request timed out")
BUSY = refusal(429, "TooManyRequests", "too many requests", retry_after_s=7)
FORBIDDEN = refusal(403, "Forbidden", "not allowed")


def site_with_a_set(*, replicas: int = 3, burst: int = 250, finalizers: bool = False, **spec: object) -> Site:
    site = Site(burst=burst, finalizers=finalizers)
    site.api.put(REPLICASETS, replicaset_document(replicas=replicas, **spec))
    site.hear_all()
    return site


async def site_at_rest(*, replicas: int = 3, finalizers: bool = False) -> Site:
    site = site_with_a_set(replicas=replicas, finalizers=finalizers)
    await site.come_to_rest()
    site.api.requests.clear()
    site.recorder.told.clear()
    return site


async def test_a_set_gets_its_vmis_and_then_no_request_is_sent():
    site = site_with_a_set(replicas=3)
    assert await site.come_to_rest() == 2
    assert len(site.active) == 3
    assert site.sent("create") == 3
    assert site.reasons == ["SuccessfulCreate"] * 3
    assert site.owner.status.replicas == 3
    assert (await site.reconcile()).result == AwaitChange()


async def test_a_key_without_a_set_causes_no_request():
    site = Site()
    assert (await site.reconcile()).result == AwaitChange()
    assert site.api.requests == []


async def test_r4_a_pass_creates_at_most_one_burst():
    site = site_with_a_set(replicas=7, burst=3)
    report = await site.reconcile()
    assert len(site.active) == 3
    assert report.result == After(LOOK_AGAIN_S)
    assert report.facts == {"create_done": 3, "held": "4 more creates wait for the next pass"}
    await site.come_to_rest()
    assert len(site.active) == 7


async def test_r9_nothing_is_created_while_the_cache_is_behind():
    site = site_with_a_set()
    await site.reconcile()
    site.vmis.catch_up(2)
    site.sets.catch_up()
    report = await site.reconcile()
    assert site.sent("create") == 3
    assert report.result == After(LOOK_AGAIN_S)
    assert site.tally["stale"] == 1


async def test_r9_the_status_is_written_even_if_the_cache_is_behind():
    site = site_with_a_set()
    await site.reconcile()
    site.vmis.catch_up(2)
    site.sets.catch_up()
    await site.reconcile()
    assert site.owner.status.replicas == 2


@pytest.mark.parametrize("finalizers", [False, True])
async def test_r9_nothing_is_deleted_twice_while_the_cache_is_behind(finalizers: bool):
    site = await site_at_rest(replicas=3, finalizers=finalizers)
    site.api.change(REPLICASETS, KEY, {"spec": {"replicas": 1}})
    site.sets.catch_up()
    await site.reconcile()
    site.vmis.catch_up(1)
    await site.reconcile()
    assert site.sent("delete") == 2
    assert len(site.active) == 1


@pytest.mark.parametrize("fault", [Lost.BEFORE, Lost.AFTER, Garbled(), BROKEN])
async def test_r9_a_create_without_an_answer_makes_no_duplicate(fault):
    site = site_with_a_set(replicas=3)
    site.fail(fault, verb="create", times=1)
    report = await site.reconcile()
    assert isinstance(report.result, Retry)
    await site.reconcile()
    assert len(site.active) <= 3
    await site.come_to_rest()
    assert len(site.active) == 3
    assert len(site.api.objects(VMIS)) == 3


async def test_r9_a_create_that_happened_is_not_sent_again_while_the_cache_is_behind():
    site = site_with_a_set(replicas=1)
    site.fail(Lost.AFTER, verb="create", times=1)
    await site.reconcile()
    await site.reconcile()
    assert site.sent("create") == 1
    assert site.sent("get") == 1


async def test_r9_if_the_lookup_of_a_lost_create_fails_the_status_is_written_and_the_pass_is_retried():
    site = site_with_a_set(replicas=2)
    site.fail(Lost.AFTER, verb="create", times=1)
    await site.reconcile()
    site.api.change(REPLICASETS, KEY, {"spec": {"replicas": 4}})
    site.sets.catch_up()
    site.fail(BUSY, verb="get")
    report = await site.reconcile()
    assert report.result == Retry("too many requests", not_before_s=7.0, outage=True)
    assert report.facts["failure"] == "too many requests"
    assert site.sent("create") == 1
    assert site.owner.status.observed_generation == 2


async def test_r9_a_new_process_with_a_stale_cache_makes_no_duplicates():
    site = site_with_a_set(replicas=5)
    await site.reconcile()
    site.vmis.catch_up(2)
    site.take_over()
    await site.reconcile()
    assert len(site.active) == 5
    assert site.tally["create already_there"] == 3


async def test_r9_a_new_process_with_a_stale_cache_deletes_no_other_vmi():
    site = await site_at_rest(replicas=5)
    site.api.change(REPLICASETS, KEY, {"spec": {"replicas": 2}})
    site.sets.catch_up()
    await site.reconcile()
    site.vmis.catch_up(1)
    site.take_over()
    await site.reconcile()
    assert len(site.active) == 2


async def test_r10_a_full_quota_costs_one_request_per_pass_and_stays_in_the_status_until_it_is_raised():
    site = site_with_a_set(replicas=3)
    site.api.quota[VMIS] = 0
    report = await site.reconcile()
    assert isinstance(report.result, Retry)
    assert report.facts["failure"].endswith("exceeded quota: few")
    assert site.sent("create") == 1
    assert site.conditions["ReplicaFailure"].endswith("exceeded quota: few")
    assert site.reasons == ["FailedCreate"]
    del site.api.quota[VMIS]
    await site.come_to_rest()
    assert len(site.active) == 3
    assert site.conditions == {}


async def test_r10_nothing_is_retried_in_a_namespace_that_is_being_deleted():
    site = site_with_a_set(replicas=3)
    site.api.terminating.add("default")
    report = await site.reconcile()
    assert report.result == AwaitChange()
    assert site.sent("create") == 1


@pytest.mark.parametrize("fault", [UNREACHABLE, Lost.BEFORE])
async def test_r10_a_server_that_does_not_answer_is_no_failure_of_the_set(fault):
    site = site_with_a_set(replicas=3)
    site.fail(fault, verb="create")
    assert isinstance((await site.reconcile()).result, Retry)
    assert site.reasons == []
    assert site.conditions == {}


async def test_the_retry_after_of_the_server_is_respected():
    site = site_with_a_set(replicas=3)
    site.fail(BUSY, verb="create")
    assert (await site.reconcile()).result == Retry("too many requests", not_before_s=7.0, outage=True)


async def test_r1_an_invalid_spec_is_logged_and_reported_and_nothing_is_created():
    site = site_with_a_set(selector={})
    with capture_logs() as logs:
        report = await site.reconcile()
    assert report.result == AwaitChange()
    assert [(line["log_level"], line["event"]) for line in logs] == [("error", "invalid spec, nothing is done")]
    assert site.reasons == ["InvalidSpec"]
    assert site.sent("create") == 0


async def test_r11_a_status_is_not_written_again_before_the_cache_shows_it():
    site = site_with_a_set(replicas=0)
    for _ in range(3):
        await site.reconcile()
    assert site.sent("patch", REPLICASETS) == 1
    site.sets.catch_up()
    assert (await site.reconcile()).result == AwaitChange()
    assert site.sent("patch", REPLICASETS) == 1


async def test_r11_a_status_waits_until_the_cache_shows_the_previous_status():
    site = site_with_a_set(replicas=2)
    await site.reconcile()
    site.vmis.catch_up()
    assert (await site.reconcile()).result == After(LOOK_AGAIN_S)
    assert site.owner.status.replicas == 0
    site.sets.catch_up()
    await site.reconcile()
    assert site.owner.status.replicas == 2


async def test_r11_a_status_for_an_older_version_is_not_written_and_a_later_pass_writes_it():
    site = site_with_a_set(replicas=0)
    site.api.change(REPLICASETS, KEY, {"metadata": {"labels": {"touched": "true"}}})
    assert (await site.reconcile()).result == After(LOOK_AGAIN_S)
    assert site.owner.status is None
    await site.come_to_rest()
    assert site.owner.status.replicas == 0


async def test_r11_a_status_is_never_written_to_another_set_of_the_same_name():
    """The server ignores a UID in a status patch. Only the resourceVersion protects the other set."""
    site = await site_at_rest(replicas=2)
    site.api.remove(VMIS, site.members[0].metadata.key)
    site.vmis.catch_up()
    site.api.remove(REPLICASETS, KEY)
    site.api.put(REPLICASETS, replicaset_document(replicas=5))
    await site.reconcile()
    assert site.sent("patch", REPLICASETS) == 1
    assert site.owner.status is None


@pytest.mark.parametrize("fault", [UNREACHABLE, Lost.BEFORE, Lost.AFTER, Garbled(), BROKEN, FORBIDDEN])
async def test_r11_a_failed_status_write_is_retried_and_the_report_has_all_facts_of_the_pass(fault):
    site = site_with_a_set(replicas=1)
    site.fail(fault, resource=REPLICASETS)
    report = await site.reconcile()
    assert isinstance(report.result, Retry)
    assert report.facts["create_done"] == 1
    assert report.facts["failure"]
    site.heal()
    await site.come_to_rest()
    assert site.owner.status.replicas == 1


async def test_r8_a_pause_is_reported_after_it_is_in_the_status():
    site = await site_at_rest(replicas=1)
    site.api.change(REPLICASETS, KEY, {"spec": {"paused": True, "replicas": 3}})
    site.hear_all()
    site.fail(UNREACHABLE, verb="patch", times=1)
    await site.reconcile()
    assert site.reasons == []
    await site.come_to_rest()
    assert site.reasons == ["SuccessfulPaused"]
    assert len(site.active) == 1
    site.api.change(REPLICASETS, KEY, {"spec": {"paused": None}})
    await site.come_to_rest()
    assert "SuccessfulResumed" in site.reasons
    assert len(site.active) == 3


async def test_r2_an_orphan_is_adopted_and_counts():
    site = site_with_a_set(replicas=3)
    site.api.put(VMIS, vmi_document("orphan"))
    await site.come_to_rest()
    assert len(site.active) == 3
    assert site.sent("create") == 2


async def test_r2_a_set_that_is_being_deleted_adopts_nothing_even_if_the_cache_is_stale():
    site = site_with_a_set(replicas=3)
    site.api.put(VMIS, vmi_document("orphan"))
    site.hear_all()
    site.api.change(REPLICASETS, KEY, {"metadata": {"finalizers": ["foregroundDeletion"]}})
    site.api.remove(REPLICASETS, KEY)
    await site.reconcile()
    assert site.members == []
    assert site.sent("patch") == 0


async def test_pending_writes_of_a_deleted_set_do_not_block_a_new_set_of_the_same_name():
    site = site_with_a_set(replicas=2)
    site.fail(Lost.AFTER, verb="create", times=1)
    await site.reconcile()
    site.api.remove(REPLICASETS, KEY)
    site.api.put(REPLICASETS, replicaset_document(replicas=2))
    site.sets.catch_up()
    await site.reconcile()
    assert len(site.active) == 2
    assert site.sent("get") == 0


async def test_unanswered_writes_of_a_deleted_set_are_not_looked_up():
    site = site_with_a_set(replicas=1)
    site.fail(Lost.AFTER)
    await site.reconcile()
    site.api.remove(REPLICASETS, KEY)
    site.sets.catch_up()
    assert (await site.reconcile()).result == AwaitChange()
    assert site.sent("get") == 0
