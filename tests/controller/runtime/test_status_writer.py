"""The status writer writes a status only after the cache shows the previous one (R11)."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from controller.runtime.expectations import Expectations
from controller.runtime.status_writer import StatusWriter
from informers.errors import ApiError, TransportError
from informers.meta import ObjectKey
from tests.builders import REPLICASETS
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.caches import LaggingCache
from tests.fakes.requests import Fault, Garbled, Lost, refusal

pytestmark = pytest.mark.looptime

KEY = ObjectKey("default", "web")


class World:
    def __init__(self) -> None:
        self.api = FakeApiServer(has_status=(REPLICASETS,))
        self.cache = LaggingCache(self.api, REPLICASETS)
        clock = asyncio.get_running_loop().time
        expectations = Expectations({REPLICASETS: self.cache.store}, now=clock, gave_up=lambda: None)
        self.writer = StatusWriter(self.api, REPLICASETS, expectations)
        self.add()

    def add(self) -> None:
        self.api.put(REPLICASETS, {"metadata": {"name": KEY.name, "namespace": KEY.namespace}, "spec": {}})
        self.cache.catch_up()

    async def write(self, replicas: int) -> bool:
        """Write a status for the set in the cache."""
        meta = self.cache.store.get(KEY).metadata
        metadata = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = msgspec.json.encode({"metadata": metadata, "status": {"replicas": replicas}})
        return await self.writer.write(KEY, meta.uid, body)

    def may_write(self) -> bool:
        return self.writer.may_write(KEY, self.cache.store.get(KEY).metadata.uid)

    @property
    def replicas(self) -> int | None:
        owner = self.api.find(REPLICASETS, KEY)
        return owner.status.replicas if owner is not None and owner.status is not None else None


async def test_r11_the_next_status_waits_until_the_cache_shows_the_one_before():
    world = World()
    assert world.may_write()
    assert await world.write(3)
    assert world.replicas == 3
    assert not world.may_write()
    world.cache.catch_up()
    assert world.may_write()


async def test_r11_a_status_for_an_older_version_is_not_written_and_not_awaited():
    world = World()
    world.api.change(REPLICASETS, KEY, {"spec": {"replicas": 1}})
    assert not await world.write(3)
    assert world.replicas is None
    assert world.may_write()


async def test_r11_a_status_for_a_deleted_set_is_not_an_error():
    world = World()
    world.api.remove(REPLICASETS, KEY)
    assert not await world.write(3)


async def test_r11_a_status_is_never_written_to_a_new_set_of_the_same_name():
    world = World()
    world.api.remove(REPLICASETS, KEY)
    world.api.put(REPLICASETS, {"metadata": {"name": KEY.name, "namespace": KEY.namespace}, "spec": {}})
    assert not await world.write(3)
    assert world.replicas is None


async def test_a_new_set_of_the_same_name_does_not_wait_for_the_status_of_the_old_set():
    world = World()
    await world.write(3)
    assert world.writer.may_write(KEY, "uid-of-the-next")


async def test_nothing_is_awaited_for_a_set_that_was_forgotten():
    world = World()
    await world.write(3)
    world.writer.forget(KEY)
    assert world.may_write()


@pytest.mark.parametrize(
    "fault", [Lost.AFTER, Garbled(), TransportError("refused", sent=False), refusal(403, "Forbidden", "no")]
)
async def test_r11_other_errors_of_a_status_write_are_raised(fault: Fault):
    world = World()
    world.api.fault_for = lambda request: fault
    with pytest.raises(ApiError):
        await world.write(3)
    assert world.may_write()
