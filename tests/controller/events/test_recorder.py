import asyncio
from datetime import datetime

import pytest

from controller.events.recorder import EVENTS, RETRY_DELAYS_S, EventRecorder
from controller.runtime.actions import Notice
from informers.errors import Forbidden, GateClosed, NotFound, ServerError, TooManyRequests, TransportError
from tests.controller.events.recorder_setup import COMPONENT, Drops, created, recording, ref
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.requests import Lost

pytestmark = pytest.mark.looptime


async def test_the_body_of_an_event():
    async with recording(instance="vmherd-0") as setup:
        setup.recorder.publish(ref(), [created("web1")])
        assert setup.recorder.unsent == 1
        await setup.sent()
        assert setup.recorder.unsent == 0
    [request] = setup.server.requests
    assert (request.verb, request.resource, request.key.namespace) == ("create", EVENTS, "shop")
    assert request.key.name.startswith("web.")
    [event] = setup.events
    assert {field: value for field, value in event.items() if field != "metadata"} == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstanceReplicaSet",
            "namespace": "shop",
            "name": "web",
            "uid": "uid-of-web",
            "resourceVersion": "77",
        },
        "reason": "SuccessfulCreate",
        "message": "Created virtual machine: web1",
        "type": "Normal",
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": "vmherd-0",
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
    }


async def test_a_repeat_raises_the_count_of_the_event_on_the_server():
    async with recording() as setup:
        for _ in range(3):
            await setup.send(created("web1"))
            await asyncio.sleep(60)
    [event] = setup.events
    assert (event["count"], event["firstTimestamp"], event["lastTimestamp"]) == (
        3,
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:02:00Z",
    )
    assert setup.verbs == ["create", "patch", "patch"]


async def test_a_repeat_of_an_expired_event_creates_a_new_event():
    async with recording() as setup:
        await setup.send(created("web1"))
        [request] = setup.server.requests
        setup.server.remove(EVENTS, request.key)
        await setup.send(created("web1"))
    assert setup.counts() == [("Created virtual machine: web1", 2)]


async def test_a_thousand_notices_in_a_minute_are_at_most_a_few_dozen_requests():
    async with recording() as setup:
        setup.server.latency_s = 0.002
        for n in range(1000):
            setup.recorder.publish(ref(), [created(f"web{n}")])
            await asyncio.sleep(0.06)
        await setup.sent()
    assert len(setup.verbs) == 25
    assert len(setup.events) == 11
    assert setup.drops == {"spam": 975}


async def test_a_notice_is_published_once_for_each_occasion():
    async with recording() as setup:
        for generation in (1, 1, 2, 1):
            notice = Notice(reason="InvalidSpec", message=f"no template ({generation})", once=str(generation))
            setup.recorder.publish(ref(), [notice])
        setup.recorder.publish(ref("other"), [Notice(reason="InvalidSpec", message="no template", once="1")])
        await setup.sent()
    assert setup.counts() == [("no template (1)", 1), ("no template (2)", 1)]
    assert setup.counts(about="other") == [("no template", 1)]
    assert {event["type"] for event in setup.events} == {"Warning"}, "a notice is a warning by default"


async def test_a_notice_that_the_full_queue_dropped_can_be_published_later():
    async with recording(queue_size=1) as setup:
        await setup.send(created("web1"), Notice(reason="InvalidSpec", message="bad", once="1"))
        assert setup.counts() == [("Created virtual machine: web1", 1)]
        await setup.send(Notice(reason="InvalidSpec", message="bad", once="1"))
    assert len(setup.events) == 2


async def test_an_occurrence_is_counted_while_its_event_is_being_sent():
    async with recording() as setup:
        setup.server.latency_s = 1
        for _ in range(5):
            setup.recorder.publish(ref(), [created("web1")])
            await asyncio.sleep(0.3)
        await setup.sent()
    assert setup.counts() == [("Created virtual machine: web1", 5)]


async def test_publishing_never_raises():
    def failing_clock() -> datetime:
        raise OSError("no clock")

    drops = Drops()
    recorder = EventRecorder(FakeApiServer(), component="c", now=failing_clock, count_drop=drops.count)
    recorder.publish(ref(), [created("web1")])
    assert drops == {"failed": 1}


# Trouble


@pytest.mark.parametrize(
    "error",
    [
        TransportError("connection refused", sent=False),
        ServerError("etcd is slow", code=500),
        TooManyRequests("later", code=429),
    ],
    ids=["no answer", "500", "429"],
)
async def test_temporary_errors_for_twenty_seconds_lose_no_event(error: Exception):
    async with recording() as setup:
        setup.outage = error
        setup.recorder.publish(ref(), [created("web1"), created("web2")])
        await asyncio.sleep(20)
        setup.outage = None
        await setup.sent()
    assert setup.counts() == [("Created virtual machine: web1", 1), ("Created virtual machine: web2", 1)]
    assert setup.drops == {}


async def test_a_namespace_whose_webhook_fails_delays_no_other():
    async with recording(queue_size=10) as setup:
        setup.server.fault_for = lambda r: ServerError("webhook", code=500) if r.key.namespace == "bad" else None
        for number in range(20):
            setup.recorder.publish(ref(f"web-{number}", "bad"), [created("x")])
        await asyncio.sleep(1)
        setup.recorder.publish(ref(), [created("web1")])
        await asyncio.sleep(0.1)
        assert setup.counts() == [("Created virtual machine: web1", 1)]
        assert setup.drops == {"queue_full": 10}


async def test_an_event_for_an_occasion_that_an_outage_lost_is_published_again():
    async with recording() as setup:
        setup.outage = TransportError("connection refused", sent=False)
        notice = Notice(reason="InvalidSpec", message="bad", once="1")
        for _ in range(30):
            setup.recorder.publish(ref(), [notice])
            await asyncio.sleep(1)
        setup.outage = None
        await setup.send(notice)
        await setup.send(notice)
    assert setup.counts() == [("bad", 2)]


async def test_an_event_whose_answer_was_lost_exists_once_with_the_right_count():
    async with recording() as setup:
        setup.faults = [Lost.AFTER]
        setup.recorder.publish(ref(), [created("web1")])
        await asyncio.sleep(0.5)
        await setup.send(created("web1"))
    assert setup.counts() == [("Created virtual machine: web1", 2)]


@pytest.mark.parametrize(
    ("error", "tries", "reason"),
    [
        (Forbidden("terminating", code=403, causes=("NamespaceTerminating",)), 1, "namespace_gone"),
        (NotFound("no namespace", code=404), 1, "namespace_gone"),
        (Forbidden("no permission", code=403), 1, "refused"),
        (GateClosed("not sent"), 1, "not_leader"),
        (RuntimeError("an unexpected error"), 1, "failed"),
        (TransportError("connection refused", sent=False), len(RETRY_DELAYS_S) + 1, "unreachable"),
    ],
    ids=["terminating", "no namespace", "no permission", "no leader", "unexpected", "after all retries"],
)
async def test_an_event_that_cannot_be_written_is_dropped_and_the_next_is_sent(
    error: Exception, tries: int, reason: str
):
    async with recording() as setup:
        setup.faults = [error] * tries
        await setup.send(created("web1"), created("web2"))
    assert setup.counts() == [("Created virtual machine: web2", 1)]
    assert setup.drops == {reason: 1}
    assert len(setup.verbs) == tries + 1


async def test_a_flush_ends_at_its_timeout_and_counts_the_dropped_events():
    async with recording() as setup:
        setup.server.latency_s = 4
        setup.recorder.publish(ref(), [created(f"web{n}") for n in range(5)])
        before = asyncio.get_running_loop().time()
        await setup.recorder.flush(5)
        assert asyncio.get_running_loop().time() - before == pytest.approx(5)
        assert setup.drops == {"shutdown": 3}
        assert len(setup.recorder) == 0
    assert len(setup.events) == 1
