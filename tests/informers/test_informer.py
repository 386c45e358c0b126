from __future__ import annotations

import asyncio
import itertools

import pytest
from structlog.testing import capture_logs

from informers.errors import TransportError
from informers.resource import Resource
from informers.store import Change, Removed, Updated
from tests.informers.scripted import Reports, ScriptedClient, error, following, make_informer, stream
from tests.informers.subjects import (
    COLOR,
    ConfigMap,
    bookmark,
    by_color,
    config_map,
    key,
    line,
    page,
)

pytestmark = pytest.mark.looptime

A1, B2 = config_map("a", 1), config_map("b", 2)
REFUSED = TransportError("cannot connect to host:6443: Connection refused", sent=False)


def names(changes: list[Change[ConfigMap]]) -> list[str]:
    return [f"{type(change).__name__} {_subject(change).metadata.name}" for change in changes]


def _subject(change: Change[ConfigMap]) -> ConfigMap:
    return change.last_known if isinstance(change, Removed) else change.new


async def test_it_lists_and_then_follows():
    client = ScriptedClient(
        page(A1, version=5, token="more"),
        page(B2, version=5),
        stream(1.0, line("MODIFIED", config_map("a", 6)) + line("DELETED", config_map("b", 7)), bookmark(9)),
    )
    informer = make_informer(client)
    heard: list[Change[ConfigMap]] = []
    informer.add_handler(heard.append)
    async with following(informer):
        await informer.synced.wait()
        assert names(heard) == ["Added a", "Added b"]
        await asyncio.sleep(2)
        assert names(heard[2:]) == ["Updated a", "Removed b"]
        assert informer.store.values() == (config_map("a", 6),)
        assert informer.store.version() == "9"
        assert informer.waiting_for == ""


async def test_a_handler_that_fails_is_counted_and_stops_nobody():
    client = ScriptedClient(page(A1, B2, version=5), stream(line("MODIFIED", config_map("a", 6))))
    reports = Reports()
    informer = make_informer(client, instruments=reports)
    heard: list[Change[ConfigMap]] = []

    def fails(change: Change[ConfigMap]) -> None:
        raise RuntimeError("broken handler")

    informer.add_handler(fails)
    informer.add_handler(heard.append)
    with capture_logs() as logs:
        async with following(informer):
            await asyncio.sleep(1)
    assert names(heard) == ["Added a", "Added b", "Updated a"]
    assert reports.said.count("handler failed") == 3
    assert logs[0]["event"] == "informer handler failed"


async def test_handlers_are_called_in_their_order_and_see_the_change_in_the_store():
    client = ScriptedClient(page(version=5), stream(line("ADDED", config_map("a", 6, color="red"))))
    informer = make_informer(client, indexes={COLOR: by_color})
    heard: list[str] = []
    for name in ("first", "second"):
        informer.add_handler(lambda _, name=name: heard.append(f"{name} {len(informer.store.by_index(COLOR, 'red'))}"))
    async with following(informer):
        await asyncio.sleep(1)
    assert heard == ["first 1", "second 1"]


async def test_it_is_synced_only_when_every_handler_has_heard_the_first_list():
    informer = make_informer(ScriptedClient(page(A1, B2, version=5)))
    synced: list[bool] = []
    informer.add_handler(lambda _: synced.append(informer.synced.is_set()))
    async with following(informer):
        await informer.synced.wait()
    assert synced == [False, False]


async def test_a_long_list_lets_the_loop_turn_while_it_is_handed_on():
    many = [config_map(f"a{n:04}", n + 1) for n in range(1000)]
    informer = make_informer(ScriptedClient(page(*many, version=2000)))
    handed = 0
    at_each_turn: list[int] = []

    def count(_: Change[ConfigMap]) -> None:
        nonlocal handed
        handed += 1

    informer.add_handler(count)
    async with following(informer):
        while not informer.synced.is_set():
            at_each_turn.append(handed)
            assert len(informer.store) in (0, 1000)
            await asyncio.sleep(0)
    steps = [later - earlier for earlier, later in itertools.pairwise(at_each_turn)]
    assert handed == 1000
    assert max(steps) <= 250


async def test_each_namespace_has_a_watch_of_its_own():
    client = ScriptedClient(
        page(config_map("a", 1, namespace="one"), version=5), page(config_map("a", 2, namespace="two"), version=6)
    )
    informer = make_informer(client, namespaces=("one", "two", "one"))
    async with following(informer):
        await informer.synced.wait()
        assert {obj.metadata.key for obj in informer.store.values()} == {key("a", "one"), key("a", "two")}
        assert {informer.store.version("one"), informer.store.version("two")} == {"5", "6"}
    assert sorted({asked.path for asked in client.asked}) == [
        "/api/v1/namespaces/one/configmaps",
        "/api/v1/namespaces/two/configmaps",
    ]


async def test_it_is_synced_only_when_all_namespaces_are():
    client = ScriptedClient(page(A1, version=5), error(403), stream(), page(B2, version=5))
    informer = make_informer(client, namespaces=("one", "two"))
    async with following(informer):
        await asyncio.sleep(0.5)
        assert len(informer.store) == 1
        assert not informer.synced.is_set()
        assert informer.waiting_for
        await asyncio.sleep(5)
        assert informer.synced.is_set()


@pytest.mark.parametrize("namespaces", [(), ("", "one")])
async def test_namespaces_that_make_no_sense_are_refused(namespaces: tuple[str, ...]):
    with pytest.raises(ValueError, match="namespaces"):
        make_informer(ScriptedClient(), namespaces=namespaces)


async def test_what_has_no_namespace_is_watched_once_whatever_namespaces_are_named():
    nodes = Resource(ConfigMap, group="", version="v1", plural="nodes", kind="Node", namespaced=False)
    client = ScriptedClient(page(config_map("n", 1, namespace=""), version=5))
    informer = type(make_informer(client))(nodes, client, namespaces=("one", "two"))  # type: ignore[arg-type]
    async with following(informer):
        await informer.synced.wait()
        assert informer.store.get(key("n", "")) is not None
    assert {asked.path for asked in client.asked} == {"/api/v1/nodes"}


async def test_a_transform_shrinks_what_is_stored():
    client = ScriptedClient(
        page(config_map("a", 1, color="red"), version=5), stream(line("ADDED", config_map("b", 6, color="red")))
    )
    informer = make_informer(client, transform=lambda obj: ConfigMap(obj.metadata))
    async with following(informer):
        await asyncio.sleep(1)
    assert [obj.data for obj in informer.store.values()] == [None, None]


async def test_a_resync_hands_every_object_on_again_as_it_is_by_then():
    many = [config_map(f"a{n:04}", n + 1) for n in range(600)]
    newer = config_map("a0599", 3000)
    client = ScriptedClient(
        page(*many, version=2000),
        stream(100.0, line("DELETED", config_map("a0598", 2999)) + line("MODIFIED", newer)),
    )
    informer = make_informer(client, resync_period_s=100.0)
    heard: list[Change[ConfigMap]] = []
    informer.add_handler(heard.append)
    async with following(informer):
        await asyncio.sleep(150)
        again = [change for change in heard if isinstance(change, Updated) and change.old is change.new]
        assert len(again) in (599, 600)
        latest: dict[str, int] = {}
        for change in heard:
            meta = _subject(change).metadata
            version = int(meta.resource_version)
            assert version >= latest.get(meta.name, 0)
            latest[meta.name] = version


async def test_it_tells_how_long_nothing_arrived():
    client = ScriptedClient(page(version=5), stream(50.0, bookmark(6)))
    informer = make_informer(client)
    async with following(informer):
        assert informer.silent_s(asyncio.get_running_loop().time()) == 0
        await asyncio.sleep(40)
        assert informer.silent_s(asyncio.get_running_loop().time()) == pytest.approx(40)
        await asyncio.sleep(20)
        assert informer.silent_s(asyncio.get_running_loop().time()) == pytest.approx(10)


async def test_cancelled_anywhere_it_leaves_nothing_behind():
    """The fixture around every test fails this one for a task that is left."""
    for steps in range(60):
        client = ScriptedClient(page(A1, version=5), REFUSED, stream(line("ADDED", B2), 0.01), page(B2, version=9))
        informer = make_informer(client)
        task = asyncio.create_task(informer.run())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert all(obj in ((A1,), (A1, B2), ()) for obj in [informer.store.values()])
