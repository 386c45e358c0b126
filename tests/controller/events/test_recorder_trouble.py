import asyncio

import pytest

from controller.events.recorder import RETRY_DELAYS_S
from controller.runtime.actions import Notice
from informers.errors import Forbidden, GateClosed, NotFound, ServerError, TooManyRequests, TransportError
from tests.controller.events.recorder_setup import created, recording, ref
from tests.fakes.requests import Lost

pytestmark = pytest.mark.looptime


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
