import asyncio
import itertools

import pytest
from structlog.testing import capture_logs

from informers.errors import TransportError
from informers.store import Added, Removed, Updated
from tests.informers.scripted import (
    END,
    REFUSED,
    RecordedInstruments,
    ScriptedClient,
    error,
    follow,
    following,
    make_informer,
    names,
    recorded_informer,
    stream,
)
from tests.informers.subjects import A1, B2, bookmark, broken, config_map, failure, key, line, page

pytestmark = pytest.mark.looptime

LOST = TransportError("cannot connect to host:6443: Connection refused", sent=True)

TOO_LARGE = error(504, failure(504, "Timeout", "Too large resource version", "ResourceVersionTooLarge"))


def gaps(times: list[float]) -> list[float]:
    return [round(later - earlier, 1) for earlier, later in itertools.pairwise(times)]


async def test_a_list_is_a_consistent_read_in_pages_and_the_watch_starts_at_its_version():
    client = ScriptedClient(page(A1, version=5, token="more"), page(B2, version=5), stream(end=END), stream())
    await follow(client, seconds=0.1)
    first, more, watch = client.requests[1:4]
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
async def test_the_requested_timeout_of_a_watch_is_five_to_ten_minutes(chance: float, timeout_s: str):
    client = ScriptedClient(page(version=5))
    await follow(client, seconds=0.1, chance=lambda: chance)
    assert client.requests[-1].params["timeoutSeconds"] == timeout_s


async def test_a_streaming_list_is_one_request_and_readers_see_only_the_complete_list():
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
    informer, changes = recorded_informer(client)
    async with following(informer):
        await asyncio.sleep(1.5)
        assert informer.store.values() == ()
        await asyncio.sleep(1)
        assert names(changes) == ["Added b", "Added c"]
        assert informer.synced.is_set()
        assert informer.store.version() == "8"
        await asyncio.sleep(1)
        assert names(changes[2:]) == ["Updated b"]
    [request] = client.requests
    assert request.params == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "timeoutSeconds": "300",
    }


async def test_a_clean_end_is_not_logged_and_the_next_watch_starts_at_the_last_version():
    client = ScriptedClient(page(A1, version=5), stream(300.0, bookmark(8), end=END), stream())
    reports = RecordedInstruments()
    with capture_logs() as logs:
        await follow(client, seconds=310, instruments=reports)
    assert (client.requests[-1].params["resourceVersion"], client.requests[-1].at) == ("8", 300)
    assert logs == []
    assert reports.calls[-1] == "ended: end"


async def test_a_silent_watch_ends_after_two_minutes():
    client = ScriptedClient(page(A1, version=5), stream(60.0, bookmark(6)), page(A1, version=6), stream())
    reports = RecordedInstruments()
    await follow(client, seconds=200, instruments=reports)
    assert client.times()[-1] == 180
    assert [request.params.get("limit") for request in client.requests[-2:]] == ["1", None]
    assert client.requests[-1].params["resourceVersion"] == "6"
    assert reports.calls[-1] == "ended: silent"


@pytest.mark.parametrize("sign", ["silence", "an old bookmark", "an error", "a version that is too large"])
async def test_after_a_restore_of_etcd_the_cache_takes_over_the_older_state(sign: str):
    before = page(config_map("a", 90), config_map("b", 95), version=100)
    restored = page(config_map("a", 50), config_map("c", 60), version=70)
    signs = {
        "silence": [stream(), page(config_map("a", 50), version=70)],
        "an old bookmark": [stream(bookmark(70))],
        "an error": [stream(line("ERROR", failure(410, "Expired")))],
        "a version that is too large": [TOO_LARGE, page(config_map("a", 50), version=70)],
    }
    client = ScriptedClient(before, *signs[sign], *[restored] * 6, stream(line("MODIFIED", config_map("a", 71))))
    informer, changes = recorded_informer(client)
    with capture_logs() as logs:
        async with following(informer):
            await asyncio.sleep(145 if sign == "silence" else 20)
            assert {obj.metadata.name: obj.metadata.resource_version for obj in informer.store.values()} == {
                "a": "71", "c": "60",
            }  # fmt: skip
            assert informer.store.rewinds == 1
    assert [entry["version"] for entry in logs if entry["log_level"] == "error"] == ["70"]
    assert [type(change) for change in changes] == [Added, Added, Removed, Updated, Added, Updated]


async def test_an_unreachable_server_is_tried_every_three_seconds_and_logged_once():
    client = ScriptedClient(
        page(A1, version=5), stream(end=LOST), *[REFUSED] * 7, page(A1, B2, version=6), stream(line("MODIFIED", A1))
    )
    informer = make_informer(client, chance=lambda: 0.999999)
    with capture_logs() as logs:
        async with following(informer):
            await asyncio.sleep(2)
            assert "refused" in informer.waiting_for
            assert informer.store.get(key("a")) == A1
            await asyncio.sleep(25)
            assert informer.waiting_for == ""
    assert gaps(client.times()[2:]) == [1.6, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 0.0]
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [
        ("waiting", "warning"),
        ("following again", "info"),
    ]


async def test_a_lost_connection_resumes_the_watch_and_an_unreachable_server_leads_to_a_new_list():
    """Etcd may have been restored while no server was reachable. A restored server uses versions again."""
    stale, restored = config_map("a", 4, color="lost"), config_map("a", 3, color="restored")
    client = ScriptedClient(
        page(stale, version=5), stream(end=LOST), stream(1.0, end=LOST), REFUSED, page(restored, version=7), stream()
    )
    informer = await follow(client, seconds=20)
    assert [request.params.get("resourceVersion") for request in client.requests[2:]] == ["5", "5", "5", None, "7"]
    assert informer.store.values() == (restored,)
    assert informer.store.rewinds == 1


async def test_the_informer_waits_for_a_resource_that_is_not_served():
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
    events = [entry["event"] for entry in logs]
    waiting = "resource is not served, waiting for it"
    assert events == [waiting, "following again", waiting]


async def test_a_too_deeply_nested_object_does_not_make_its_list_undecodable():
    nested = b'"other":' + b"[" * 400_000 + b"]" * 400_000
    deep = page(A1, config_map("deep", 2), B2, version=5).replace(b'"uid": "uid-of-deep"', nested)
    informer = make_informer(ScriptedClient(deep, stream()))
    with capture_logs() as logs:
        async with following(informer):
            await asyncio.sleep(1)
    assert informer.store.values() == (A1, B2)
    [skipped] = [entry for entry in logs if entry["log_level"] == "error"]
    assert (skipped["name"], skipped["why"]) == ("deep", "the object is nested too deeply")


async def test_an_object_that_becomes_undecodable_keeps_its_last_state_until_it_is_deleted():
    good = config_map("x", 2)
    client = ScriptedClient(
        page(good, version=5),
        stream(line("MODIFIED", broken("x", 6)), 1.0, line("ERROR", failure(410, "Expired"))),
        page(broken("x", 6), version=7),
        stream(10.0, line("DELETED", broken("x", 8))),
    )
    informer, changes = recorded_informer(client)
    async with following(informer):
        await asyncio.sleep(5)
        assert informer.store.get(key("x")) == good
        await asyncio.sleep(10)
        assert informer.store.get(key("x")) is None
    assert changes == [Added(good), Removed(good)]


async def test_lists_and_watches_are_reported_to_the_instruments():
    expired = line("ERROR", failure(410, "Expired"))
    client = ScriptedClient(
        page(A1, version=5), stream(10.0, end=LOST), stream(expired), page(A1, B2, version=9), stream()
    )
    reports = RecordedInstruments()
    await follow(client, seconds=60, instruments=reports)
    assert reports.calls == [
        "ended: Invalid",
        "listed: start",
        "ended: TransportError",
        "ended: expired",
        "listed: expired",
    ]
    assert reports.size == 2
    assert reports.progressed >= 3


WHY = "the API server has a, but the cache does not"


async def test_an_object_that_the_watch_lost_is_in_the_cache_after_a_relist():
    client = ScriptedClient(
        page(config_map("b", 2), version=5),
        stream(line("MODIFIED", config_map("b", 9))),
        page(config_map("a", 7), config_map("b", 9), version=9),
        stream(line("MODIFIED", config_map("a", 10))),
    )
    reports = RecordedInstruments()
    informer, changes = recorded_informer(client, instruments=reports)
    with capture_logs() as logs:
        async with following(informer):
            await asyncio.sleep(5)
            assert informer.store.get(key("a")) is None
            changes.clear()
            informer.relist(WHY)
            await asyncio.sleep(1)
            assert informer.store.get(key("a")) == config_map("a", 10)
            assert informer.store.rewinds == 0
    assert changes[0] == Added(config_map("a", 7))
    assert reports.calls[2:] == ["ended: contradiction", "listed: contradiction"]
    assert [(entry["log_level"], entry["why"]) for entry in logs] == [("warning", WHY)]


async def test_a_relist_while_the_informer_waits_replaces_the_next_watch():
    lost = TransportError("broke", sent=True)
    client = ScriptedClient(page(version=5), stream(end=lost), page(config_map("a", 7), version=9), stream())
    informer = make_informer(client, chance=lambda: 0.9)
    async with following(informer):
        await asyncio.sleep(0.1)
        informer.relist(WHY)
        await asyncio.sleep(5)
    assert [request.params.get("limit") for request in client.requests[1:]] == ["500", None, "500", None]


async def test_two_relists_at_the_same_time_cause_one_list():
    client = ScriptedClient(page(version=5), stream(), page(version=9), stream())
    informer = make_informer(client)
    async with following(informer):
        await asyncio.sleep(5)
        informer.relist(WHY)
        informer.relist(WHY)
        await asyncio.sleep(0)  # the watch is being closed
        informer.relist(WHY)
        await asyncio.sleep(5)
    assert [request.params.get("limit") for request in client.requests[1:]] == ["500", None, "500", None]


async def test_a_relist_that_stalls_adds_nothing_to_the_next_list():
    """The object is deleted while the list stalls, so only the first list has it."""
    first, stalled = stream(line("ADDED", A1), bookmark(5, initial_end=True)), stream(line("ADDED", A1))
    client = ScriptedClient(first, stalled, page(B2, version=9), stream(), streaming=True)
    informer, changes = recorded_informer(client)
    async with following(informer):
        await asyncio.sleep(5)
        informer.relist(WHY)
        await asyncio.sleep(200)
        assert informer.store.values() == (B2,)
    assert changes == [Added(A1), Removed(A1), Added(B2)]


async def test_a_relist_during_a_list_leads_to_another_list():
    """The list may have begun before a restore of the server."""
    lists = page(A1, version=7, token="more"), page(version=7), page(B2, version=8)
    client = ScriptedClient(page(A1, version=5), stream(), lists[0], REFUSED, *lists[1:], stream())
    informer = make_informer(client)
    async with following(informer):
        await asyncio.sleep(5)
        informer.relist(WHY)
        await asyncio.sleep(0.1)
        informer.relist("the lease went back", restored=True)
        await asyncio.sleep(5)
        assert informer.store.values() == (B2,)
        assert informer.store.rewinds == 1


async def test_an_informer_that_runs_again_forgets_the_list_that_was_interrupted():
    client = ScriptedClient(page(A1, version=5, token="more"), REFUSED, page(B2, version=6), stream())
    informer = make_informer(client, chance=lambda: 0.9)
    async with following(informer):
        await asyncio.sleep(0.1)
    async with following(informer):
        await asyncio.sleep(0.1)
        assert informer.store.values() == (B2,)


async def test_a_relist_before_the_first_list_is_complete_is_ignored():
    client = ScriptedClient(page(config_map("a", 1), version=5, token="more"), page(version=5), stream(end=END))
    informer = make_informer(client)
    async with following(informer):
        informer.relist(WHY)
        await asyncio.sleep(0.1)
    assert [request.params.get("limit") for request in client.requests[1:]] == ["500", "500", None]


async def test_only_the_namespace_of_the_contradiction_is_listed_again():
    client = ScriptedClient(page(version=5), stream(), page(version=5), stream())
    informer = make_informer(client, namespaces=("one", "two"))
    async with following(informer):
        await asyncio.sleep(5)
        before = len(client.requests)
        client.answer_next(page(version=9))
        informer.relist(WHY, namespace="two")
        await asyncio.sleep(1)
    [listed] = [request.path for request in client.requests[before:] if "limit" in request.params]
    assert listed == "/api/v1/namespaces/two/configmaps"


@pytest.mark.parametrize(("version", "times"), [(9, 1), (4, 6)], ids=["newer than the cache", "older than the cache"])
async def test_after_a_restore_a_list_replaces_the_cache_and_counts_as_a_restore(version: int, times: int):
    """A newer list: the server has overtaken the cache. Without a report of the restore, expectations would stay."""
    listed = page(config_map("b", 3), version=version)
    client = ScriptedClient(page(config_map("a", 4), version=5), stream(), *[listed] * times)
    informer = make_informer(client)
    async with following(informer):
        await asyncio.sleep(5)
        informer.relist("the lease went back", restored=True)
        await asyncio.sleep(times)
        assert [obj.metadata.name for obj in informer.store.values()] == ["b"]
        assert informer.store.rewinds == 1
