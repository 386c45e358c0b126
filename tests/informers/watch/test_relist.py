"""`SharedInformer.relist`: a user of the cache has found that the cache contradicts the server."""

import asyncio

import pytest
from structlog.testing import capture_logs

from informers.errors import TransportError
from informers.store import Added, Removed
from tests.informers.scripted import (
    END,
    RecordedInstruments,
    ScriptedClient,
    following,
    make_informer,
    recorded_informer,
    stream,
)
from tests.informers.subjects import config_map, key, line, page

pytestmark = pytest.mark.looptime

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


async def test_an_object_whose_deletion_the_watch_lost_is_gone_after_a_relist():
    client = ScriptedClient(page(config_map("a", 1), version=5), stream(), page(version=9), stream())
    informer, changes = recorded_informer(client)
    async with following(informer):
        await asyncio.sleep(5)
        informer.relist(WHY)
        await asyncio.sleep(1)
    assert changes[-1] == Removed(config_map("a", 1))
    assert client.times()[-2] == 5


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
        await asyncio.sleep(5)
    assert [request.params.get("limit") for request in client.requests[1:]] == ["500", None, "500", None]


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
