from __future__ import annotations

import asyncio
import itertools

import pytest
from structlog.testing import capture_logs

from informers.errors import TransportError
from informers.store import Added, Change, Removed
from tests.informers.scripted import END, Reports, ScriptedClient, error, following, make_informer, stream
from tests.informers.subjects import (
    ConfigMap,
    bookmark,
    broken,
    config_map,
    failure,
    key,
    line,
    page,
)

pytestmark = pytest.mark.looptime

A1, B2 = config_map("a", 1), config_map("b", 2)
REFUSED = TransportError("cannot connect to host:6443: Connection refused", sent=False)


def names(changes: list[Change[ConfigMap]]) -> list[str]:
    return [f"{type(change).__name__} {_subject(change).metadata.name}" for change in changes]


def gaps(times: list[float]) -> list[float]:
    return [round(later - earlier, 1) for earlier, later in itertools.pairwise(times)]


def _subject(change: Change[ConfigMap]) -> ConfigMap:
    return change.last_known if isinstance(change, Removed) else change.new


async def test_lists_are_consistent_reads_in_pages_and_watches_begin_where_the_list_ended():
    client = ScriptedClient(page(A1, version=5, token="more"), page(B2, version=5), stream(end=END), stream())
    async with following(make_informer(client)):
        await asyncio.sleep(0.1)
    first, more, watch = client.asked[1:4]
    assert first.path == "/api/v1/configmaps"
    assert first.params == {"limit": "500"}
    assert more.params == {"limit": "500", "continue": "more"}
    assert watch.params == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": "5",
        "timeoutSeconds": "300",
    }


@pytest.mark.parametrize(("chance", "timeout_s"), [(0.0, "300"), (0.5, "450"), (0.999, "600")])
async def test_servers_are_asked_to_end_a_watch_after_five_to_ten_minutes(chance: float, timeout_s: str):
    client = ScriptedClient(page(version=5))
    async with following(make_informer(client, chance=lambda: chance)):
        await asyncio.sleep(0.1)
    assert client.asked[-1].params["timeoutSeconds"] == timeout_s


async def test_a_streaming_list_is_one_request_and_nobody_sees_half_of_it():
    client = ScriptedClient(
        stream(
            line("ADDED", A1) + line("ADDED", B2),
            1.0,
            line("DELETED", config_map("a", 6)) + line("ADDED", config_map("c", 7)),
            1.0,
            bookmark(8, initial_end=True),
            1.0,
            line("MODIFIED", config_map("b", 9)),
        ),
        streaming=True,
    )
    informer = make_informer(client)
    heard: list[Change[ConfigMap]] = []
    informer.add_handler(heard.append)
    async with following(informer):
        await asyncio.sleep(1.5)
        assert informer.store.values() == ()
        await asyncio.sleep(1)
        assert names(heard) == ["Added b", "Added c"]
        assert informer.synced.is_set()
        assert informer.store.version() == "8"
        await asyncio.sleep(1)
        assert names(heard[2:]) == ["Updated b"]
    [asked] = client.asked
    assert asked.params == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "timeoutSeconds": "300",
    }


async def test_a_clean_end_is_no_news_and_the_next_watch_goes_on_from_the_last_version():
    client = ScriptedClient(page(A1, version=5), stream(300.0, bookmark(8), end=END), stream())
    reports = Reports()
    with capture_logs() as logs:
        async with following(make_informer(client, instruments=reports)):
            await asyncio.sleep(310)
    assert client.asked[-1].params["resourceVersion"] == "8"
    assert client.asked[-1].at == 300
    assert logs == []
    assert reports.said[-1] == "ended: end"


async def test_an_expired_version_leads_to_a_new_list_and_tells_exactly_what_changed():
    expired = line("ERROR", failure(410, "Expired"))
    client = ScriptedClient(page(A1, B2, version=5), stream(10.0, expired), page(config_map("b", 8), version=9))
    informer = make_informer(client)
    heard: list[Change[ConfigMap]] = []
    informer.add_handler(heard.append)
    async with following(informer):
        await asyncio.sleep(20)
    assert names(heard[2:]) == ["Removed a", "Updated b"]
    assert client.times()[-2] == pytest.approx(10.8)


async def test_a_silent_watch_is_over_after_two_minutes():
    client = ScriptedClient(page(A1, version=5), stream(60.0, bookmark(6)), stream())
    reports = Reports()
    async with following(make_informer(client, instruments=reports)):
        await asyncio.sleep(200)
    assert client.times()[-1] == 180
    assert client.asked[-1].params["resourceVersion"] == "6"
    assert reports.said[-1] == "ended: silent"


async def test_failures_of_a_list_are_waited_out_longer_and_longer():
    client = ScriptedClient(*[error(500)] * 8, page(A1, version=5))
    async with following(make_informer(client, chance=lambda: 0.999999)):
        await asyncio.sleep(170)
    assert gaps(client.times()[1:10]) == [1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0]


async def test_a_server_that_is_gone_is_asked_again_every_few_seconds_and_named_once():
    client = ScriptedClient(page(A1, version=5), stream(end=REFUSED), *[REFUSED] * 7, stream(line("ADDED", B2)))
    informer = make_informer(client, chance=lambda: 0.999999)
    with capture_logs() as logs:
        async with following(informer):
            await asyncio.sleep(2)
            assert "refused" in informer.waiting_for
            assert informer.store.get(key("a")) == A1
            await asyncio.sleep(25)
            assert informer.waiting_for == ""
    assert gaps(client.times()[2:]) == [1.6, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0]
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [
        ("waiting", "warning"),
        ("following again", "info"),
    ]


async def test_a_version_that_expired_while_the_server_was_gone_does_not_pay_for_that():
    expired = line("ERROR", failure(410, "Expired"))
    client = ScriptedClient(
        page(A1, version=5), stream(end=REFUSED), *[REFUSED] * 20, stream(expired), page(B2, version=9)
    )
    informer = make_informer(client, chance=lambda: 0.999999)
    async with following(informer):
        await asyncio.sleep(70)
    assert gaps(client.times()[-4:]) == [3.0, 1.6, 0.0]
    assert informer.store.values() == (B2,)


async def test_a_new_reason_to_wait_is_named_as_well():
    client = ScriptedClient(page(version=5), REFUSED, REFUSED, error(403), error(403), stream())
    with capture_logs() as logs:
        async with following(make_informer(client)):
            await asyncio.sleep(30)
    assert [entry["event"] for entry in logs] == ["waiting", "waiting", "following again"]
    assert "403" in logs[1]["why"]


async def test_retry_after_is_a_floor_for_the_pause():
    client = ScriptedClient(page(version=5), error(429, retry_after="20"), stream())
    async with following(make_informer(client)):
        await asyncio.sleep(30)
    assert client.times()[-1] == 20


async def test_a_version_that_the_server_has_not_reached_yet_is_asked_for_again_in_a_moment():
    too_large = failure(504, "Timeout", "later", "ResourceVersionTooLarge", retry_after=1)
    client = ScriptedClient(page(version=5), *[error(504, too_large)] * 3, stream())
    async with following(make_informer(client)):
        await asyncio.sleep(10)
    assert [asked.params.get("resourceVersion") for asked in client.asked[2:]] == ["5"] * 4
    assert client.times()[-1] == 3


async def test_a_list_older_than_the_cache_is_not_taken():
    expired = stream(line("ERROR", failure(410, "Expired")))
    client = ScriptedClient(
        page(config_map("a", 5), version=5), expired, page(version=4), page(version=4), page(version=6)
    )
    informer = make_informer(client)
    async with following(informer):
        await asyncio.sleep(2)
        assert informer.store.get(key("a")) is not None
        assert informer.store.version() == "5"
        await asyncio.sleep(2)
        assert informer.store.version() == "6"
        assert len(informer.store) == 0


async def test_a_resource_that_is_not_served_is_waited_for():
    client = ScriptedClient(error(404), error(404), error(404), page(A1, version=5), stream(end=error(404)), error(404))
    informer = make_informer(client)
    with capture_logs() as logs:
        async with following(informer):
            await asyncio.sleep(1)
            assert informer.missing
            assert not informer.synced.is_set()
            await asyncio.sleep(2)
            assert informer.synced.is_set()
            assert informer.missing
            assert informer.store.values() == (A1,)
    told = [entry["event"] for entry in logs]
    waiting = "resource is not served, waiting for it"
    assert told == [waiting, "following again", waiting]


async def test_an_expired_page_token_begins_the_list_anew():
    client = ScriptedClient(page(A1, version=5, token="more"), error(410), page(B2, version=9))
    informer = make_informer(client)
    async with following(informer):
        await asyncio.sleep(5)
    assert informer.store.values() == (B2,)
    assert "continue" not in client.asked[3].params


async def test_a_page_that_was_lost_is_asked_for_again_and_the_pages_before_it_are_not():
    client = ScriptedClient(page(A1, version=5, token="more"), REFUSED, page(B2, version=5))
    informer = make_informer(client)
    async with following(informer):
        await asyncio.sleep(5)
    assert informer.store.values() == (A1, B2)
    assert [asked.params.get("continue") for asked in client.asked[1:4]] == [None, "more", "more"]


async def test_an_answer_that_is_no_list_is_a_failure_like_any_other():
    client = ScriptedClient(b"<html>hello</html>", page(A1, version=5))
    informer = make_informer(client)
    async with following(informer):
        await asyncio.sleep(0.1)
        assert "the list cannot be read" in informer.waiting_for
        await asyncio.sleep(5)
        assert informer.synced.is_set()


async def test_an_object_that_does_not_decode_is_counted_and_named_once_for_each_version():
    bad = broken("bad", 6)
    expired = line("ERROR", failure(410, "Expired"))
    client = ScriptedClient(
        page(A1, broken("bad", 2), version=5),
        stream(line("MODIFIED", bad), 1.0, expired),
        page(A1, bad, version=7),
    )
    reports = Reports()
    informer = make_informer(client, instruments=reports)
    with capture_logs() as logs:
        async with following(informer):
            await asyncio.sleep(10)
    assert informer.store.values() == (A1,)
    assert reports.said.count("undecodable") == 3
    named = [(entry["name"], entry["version"]) for entry in logs if entry["log_level"] == "error"]
    assert named == [("bad", "2"), ("bad", "6")]


async def test_what_cannot_be_decoded_any_more_keeps_its_last_good_state_until_it_is_deleted():
    good = config_map("x", 2)
    client = ScriptedClient(
        page(good, version=5),
        stream(line("MODIFIED", broken("x", 6)), 1.0, line("ERROR", failure(410, "Expired"))),
        page(broken("x", 6), version=7),
        stream(10.0, line("DELETED", broken("x", 8))),
    )
    informer = make_informer(client)
    heard: list[Change[ConfigMap]] = []
    informer.add_handler(heard.append)
    async with following(informer):
        await asyncio.sleep(5)
        assert informer.store.get(key("x")) == good
        await asyncio.sleep(10)
        assert informer.store.get(key("x")) is None
    assert heard == [Added(good), Removed(good)]


async def test_what_it_does_is_reported():
    expired = line("ERROR", failure(410, "Expired"))
    client = ScriptedClient(
        page(A1, version=5), stream(10.0, end=REFUSED), stream(expired), page(A1, B2, version=9), stream()
    )
    reports = Reports()
    async with following(make_informer(client, instruments=reports)):
        await asyncio.sleep(60)
    assert reports.said == [
        "ended: Invalid",
        "listed: start",
        "ended: TransportError",
        "ended: expired",
        "listed: expired",
    ]
    assert reports.size == 2
    assert reports.progressed >= 3
