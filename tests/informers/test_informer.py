import asyncio
import itertools

import pytest
from structlog.testing import capture_logs

from informers.resource import Resource
from informers.store import Added, Change, Removed
from tests.informers import scripted
from tests.informers.subjects import A1, B2, ConfigMap, bookmark, config_map, key, line, page

pytestmark = pytest.mark.looptime


async def test_the_informer_lists_and_then_watches():
    client = scripted.ScriptedClient(
        page(A1, version=5, token="more"),
        page(B2, version=5),
        scripted.stream(1.0, line("MODIFIED", config_map("a", 6)) + line("DELETED", config_map("b", 7)), bookmark(9)),
    )
    informer, changes = scripted.recorded_informer(client)
    async with scripted.following(informer):
        await informer.synced.wait()
        assert scripted.names(changes) == ["Added a", "Added b"]
        await asyncio.sleep(2)
        assert scripted.names(changes[2:]) == ["Updated a", "Removed b"]
        assert informer.store.values() == (config_map("a", 6),)
        assert informer.store.version() == "9"
        assert informer.waiting_for == ""


async def test_a_failing_handler_is_counted_and_the_other_handlers_are_called():
    client = scripted.ScriptedClient(page(A1, B2, version=5), scripted.stream(line("MODIFIED", config_map("a", 6))))
    reports = scripted.RecordedInstruments()
    informer = scripted.make_informer(client, instruments=reports)
    changes: list[Change[ConfigMap]] = []

    def fails(change: Change[ConfigMap]) -> None:
        raise RuntimeError("broken handler")

    informer.add_handler(fails)
    informer.add_handler(changes.append)
    with capture_logs() as logs:
        async with scripted.following(informer):
            await asyncio.sleep(1)
    assert scripted.names(changes) == ["Added a", "Added b", "Updated a"]
    assert reports.calls.count("handler failed") == 3
    assert logs[0]["event"] == "informer handler failed"


async def test_other_tasks_run_while_handlers_receive_a_long_list():
    many = [config_map(f"a{n:04}", n + 1) for n in range(1000)]
    informer = scripted.make_informer(scripted.ScriptedClient(page(*many, version=2000)))
    received = 0
    at_each_turn: list[int] = []

    def count(_: Change[ConfigMap]) -> None:
        nonlocal received
        received += 1

    informer.add_handler(count)
    async with scripted.following(informer):
        while not informer.synced.is_set():
            at_each_turn.append(received)
            assert len(informer.store) in (0, 1000)
            await asyncio.sleep(0)
    steps = [later - earlier for earlier, later in itertools.pairwise(at_each_turn)]
    assert received == 1000
    assert max(steps) <= 250


async def test_synced_is_set_after_all_namespaces_are_listed():
    client = scripted.ScriptedClient(page(A1, version=5), scripted.error(403), scripted.stream(), page(B2, version=5))
    informer = scripted.make_informer(client, namespaces=("one", "two"))
    async with scripted.following(informer):
        await asyncio.sleep(0.5)
        assert len(informer.store) == 1
        assert not informer.synced.is_set()
        assert informer.waiting_for
        await asyncio.sleep(5)
        assert informer.synced.is_set()


@pytest.mark.parametrize("namespaces", [(), ("", "one")])
async def test_invalid_namespaces_are_rejected(namespaces: tuple[str, ...]):
    with pytest.raises(ValueError, match="namespaces"):
        scripted.make_informer(scripted.ScriptedClient(), namespaces=namespaces)


async def test_a_cluster_scoped_resource_has_one_watch():
    nodes = Resource(ConfigMap, group="", version="v1", plural="nodes", kind="Node", namespaced=False)
    client = scripted.ScriptedClient(page(config_map("n", 1, namespace=""), version=5))
    informer = type(scripted.make_informer(client))(nodes, client, namespaces=("one", "two"))  # type: ignore[arg-type]
    async with scripted.following(informer):
        await informer.synced.wait()
        assert informer.store.get(key("n", "")) is not None
    assert {request.path for request in client.requests} == {"/api/v1/nodes"}


async def test_an_object_that_the_transform_rejects_is_not_stored():
    client = scripted.ScriptedClient(
        page(config_map("a", 1, color="red"), config_map("b", 2), version=5),
        scripted.stream(
            line("MODIFIED", config_map("b", 6, color="red"))
            + line("MODIFIED", config_map("a", 7))
            + line("DELETED", config_map("c", 8))
        ),
    )
    informer, changes = scripted.recorded_informer(
        client, transform=lambda obj: obj if obj.data and "color" in obj.data else None
    )
    async with scripted.following(informer):
        await asyncio.sleep(1)
    assert [obj.metadata.name for obj in informer.store.values()] == ["b"]
    assert [type(change) for change in changes] == [Added, Added, Removed]
    assert changes[2].last_known.metadata.name == "a"
    assert informer.store.version() == "8"


async def test_a_rejected_object_of_a_streaming_list_replaces_its_earlier_state():
    client = scripted.ScriptedClient(
        scripted.stream(
            line("ADDED", config_map("a", 1, color="red"))
            + line("MODIFIED", config_map("a", 2))
            + bookmark(5, initial_end=True)
        ),
        streaming=True,
    )
    informer = scripted.make_informer(client, transform=lambda obj: obj if obj.data and "color" in obj.data else None)
    async with scripted.following(informer):
        await informer.synced.wait()
    assert len(informer.store) == 0


async def test_silent_s_is_the_time_since_data_arrived():
    informer = scripted.make_informer(scripted.ScriptedClient(page(version=5), scripted.stream(50.0, bookmark(6))))
    async with scripted.following(informer):
        assert informer.silent_s(asyncio.get_running_loop().time()) == 0
        await asyncio.sleep(40)
        assert informer.silent_s(asyncio.get_running_loop().time()) == pytest.approx(40)
        await asyncio.sleep(20)
        assert informer.silent_s(asyncio.get_running_loop().time()) == pytest.approx(10)


async def test_cancellation_at_any_point_leaves_no_task_behind():
    """If a task still runs after the test, `tests/conftest.py` makes the test fail."""
    for steps in range(60):
        client = scripted.ScriptedClient(
            page(A1, version=5), scripted.REFUSED, scripted.stream(line("ADDED", B2), 0.01), page(B2, version=9)
        )
        informer = scripted.make_informer(client)
        task = asyncio.create_task(informer.run())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert all(obj in ((A1,), (A1, B2), ()) for obj in [informer.store.values()])
