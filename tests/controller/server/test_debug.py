"""The pages under `/debug/`. test_http.py shows that they exist only if the user wants them."""

import asyncio
import gc
import json
import re
from typing import Any

import pytest
from msgspec import Struct

from controller.runtime.result import AwaitChange, Report, Retry
from controller.runtime.workers.controller import Controller
from controller.server.debug import Informer, Page, debug_pages
from informers.meta import ObjectKey
from informers.workqueue import WorkQueue
from tests.controller.runtime.workers import A, B, Script, Tally
from tests.informers.scripted import ScriptedClient, following, make_informer, stream
from tests.informers.subjects import bookmark, config_map, line, page

pytestmark = pytest.mark.looptime

WATCH = "/api/v1/configmaps"


class Kind(Struct):
    controller: Controller
    expected: tuple[ObjectKey, ...] = ()

    def unsettled(self) -> tuple[ObjectKey, ...]:
        return self.expected


class Recorder(Struct):
    unsent: int = 0


def pages(*kinds: Kind, caches: tuple[Informer, ...] = (), unsent: int = 0) -> dict[str, Page]:
    return debug_pages(kinds, caches, Recorder(unsent), asyncio.get_running_loop().time)


def a_kind(script: Script, *expected: ObjectKey) -> Kind:
    return Kind(Controller("pool", WorkQueue("pool"), script, workers=1, instruments=Tally()), expected)


async def two_seconds(key: ObjectKey, call: int) -> Report:
    await asyncio.sleep(2)
    return Report(AwaitChange())


def keys_of(kind: Kind) -> Any:
    return json.loads(pages(kind)["settled"]())["kinds"]["pool"]


async def test_the_page_settled_shows_the_keys_of_each_kind_and_the_events():
    kind = a_kind(Script(two_seconds), B)
    queue = kind.controller.queue
    for key in (A, B):
        queue.add(key)
    queue.add_after(A, 7.5)
    async with asyncio.TaskGroup() as group:
        group.create_task(kind.controller.run())
        await asyncio.sleep(1)
        shown = {"queued": ["ns/b"], "running": ["ns/a"], "unsettled": ["ns/b"], "delayed": {"ns/a": 6.5}}
        served = json.loads(pages(kind, unsent=3)["settled"]())
        assert served == {"caches": {}, "kinds": {"pool": shown}, "unsent_events": 3}
        queue.add(A)
        assert keys_of(kind)["queued"] == ["ns/a", "ns/b"], "a key that runs again"
        await asyncio.sleep(6)
        assert keys_of(kind) == {"queued": [], "running": [], "unsettled": ["ns/b"], "delayed": {"ns/a": 0.5}}
        queue.shut_down()


async def test_a_key_that_waits_for_the_end_of_an_outage_is_delayed():
    async def fails(key: ObjectKey, call: int) -> Report:
        return Report(Retry("the server is down", outage=True))

    kind = a_kind(Script(fails))
    async with asyncio.TaskGroup() as group:
        group.create_task(kind.controller.run())
        kind.controller.queue.add(A)
        await asyncio.sleep(0.001)
        assert keys_of(kind)["delayed"] == {"ns/a": pytest.approx(0.004, abs=0.002)}
        kind.controller.queue.shut_down()


async def test_the_pages_of_the_caches_show_versions_and_objects():
    changed = stream(1.0, line("MODIFIED", config_map("a", 6)), 1.0, line("DELETED", config_map("b", 7)), bookmark(9))
    informer = make_informer(ScriptedClient(page(config_map("b", 2), config_map("a", 1), version=5), changed))
    served = pages(caches=(informer,))

    def versions() -> Any:
        return json.loads(served["settled"]())["caches"]

    assert versions() == {"configmaps": {WATCH: ""}}
    async with following(informer):
        seen = []
        for _ in range(3):
            await asyncio.sleep(0.9)
            seen.append((versions()["configmaps"][WATCH], json.loads(served["objects"]())["configmaps"]["objects"]))
    assert seen == [("5", ["ns/a", "ns/b"]), ("6", ["ns/a", "ns/b"]), ("9", ["ns/a"])]
    assert json.loads(served["objects"]())["configmaps"]["watches"] == {WATCH: "9"}


async def test_a_queue_is_described_by_its_waiting_keys_and_its_longest_reconcile():
    kind = a_kind(Script(two_seconds))
    queue = kind.controller.queue
    queue.add(A)
    await queue.get()
    await asyncio.sleep(5)
    queue.add(B)
    await asyncio.sleep(10)
    assert pages(kind)["queues"]() == (
        "pool: 1 keys waiting, the oldest for 10.0s; the longest reconcile so far takes 15.0s\n"
    )


async def test_the_memory_page_counts_the_blocks_of_the_allocator():
    gc.freeze()
    try:
        [blocks, frozen, waiting] = pages()["memory"]().splitlines()
    finally:
        gc.unfreeze()
    assert int(blocks.removeprefix("allocated blocks: ")) > 1000
    assert int(frozen.removeprefix("frozen objects: ")) > 1000
    assert re.fullmatch(r"objects that wait for a collection, by generation: \d+, \d+, \d+", waiting)
