"""The executor resolves writes whose answer was lost (R9)."""

from __future__ import annotations

import asyncio

import pytest

from controller.kubevirt.resources import VMIS
from controller.runtime.plan import Action
from informers.errors import ApiError
from tests.controller.runtime.execution import (
    BUSY,
    IN_DOUBT,
    INVALID,
    OWNER,
    UNREACHABLE,
    World,
    create,
    delete,
    document,
    key,
    kinds,
    patch,
)
from tests.fakes.requests import Fault, Lost

pytestmark = pytest.mark.looptime


async def lost(action: Action, *, happened: bool, world: World | None = None) -> World:
    """A world in which the answer to this write was lost."""
    world = world or World()
    world.fail(Lost.AFTER if happened else Lost.BEFORE)
    assert kinds([await world.outcome_of(action)]) == ["Unknown"]
    world.heal()
    world.api.requests.clear()
    return world


async def test_r9_a_lost_create_that_happened_waits_for_the_cache():
    world = await lost(create(), happened=True)
    assert await world.resolve() is None
    assert world.unresolved == ()
    assert not world.settled
    world.cache.catch_up()
    assert world.settled
    assert world.sent == ["get vm"]


async def test_r9_a_lost_create_that_did_not_happen_is_settled():
    world = await lost(create(), happened=False)
    assert await world.resolve() is None
    assert world.settled


async def test_r9_a_lost_create_whose_name_has_another_owner_is_settled():
    world = await lost(create(), happened=False)
    world.api.put(VMIS, document("vm", owner_uid="somebody-else"))
    assert await world.resolve() is None
    assert world.settled


async def test_r9_a_lost_create_that_happened_and_is_being_deleted_waits_for_the_cache():
    world = World()
    world.api.finalizers = {VMIS: ["some/finalizer"]}
    await lost(create(), happened=True, world=world)
    world.api.remove(VMIS, key("vm"))
    assert await world.resolve() is None
    assert not world.settled
    world.cache.catch_up()
    assert world.settled


async def test_r9_a_lost_create_that_the_cache_has_shown_is_not_asked_about():
    world = await lost(create(), happened=True)
    world.cache.catch_up()
    assert await world.resolve() is None
    assert world.settled
    assert world.sent == []


@pytest.mark.parametrize("finalizers", [[], ["some/finalizer"]], ids=["at once", "later"])
async def test_r9_a_lost_delete_that_happened_waits_for_the_cache(finalizers: list[str]):
    world = World()
    uid = world.add("vm", finalizers=finalizers)
    await lost(delete("vm", uid), happened=True, world=world)
    assert await world.resolve() is None
    assert world.unresolved == ()
    assert not world.settled
    world.cache.catch_up()
    assert world.settled


async def test_r9_a_lost_delete_that_did_not_happen_is_settled():
    world = World()
    uid = world.add("vm")
    await lost(delete("vm", uid), happened=False, world=world)
    assert await world.resolve() is None
    assert world.settled


async def test_r9_a_lost_delete_whose_name_has_a_new_object_waits_for_the_cache():
    world = World()
    uid = world.add("vm")
    await lost(delete("vm", uid), happened=True, world=world)
    world.api.put(VMIS, document("vm"))
    assert await world.resolve() is None
    assert not world.settled
    world.cache.catch_up(1)
    assert world.settled


@pytest.mark.parametrize("happened", [True, False])
async def test_r9_a_lost_patch_waits_until_the_cache_shows_the_version_of_the_server(happened: bool):
    world = World()
    world.add("vm")
    await lost(patch(labels={"a": "b"}), happened=happened, world=world)
    world.cache.catch_up()
    assert world.unresolved, "the cache cannot tell whose change it shows"
    assert await world.resolve() is None
    assert world.settled


async def test_r9_a_lost_patch_of_a_deleted_object_is_settled():
    world = World()
    world.add("vm")
    await lost(patch(labels={"a": "b"}), happened=True, world=world)
    world.api.remove(VMIS, key("vm"))
    assert await world.resolve() is None
    assert world.settled


@pytest.mark.parametrize("fault", [UNREACHABLE, INVALID, BUSY, *IN_DOUBT])
async def test_r9_a_write_stays_unresolved_while_the_server_does_not_answer(fault: Fault):
    world = await lost(create(), happened=True)
    world.fail(fault)
    assert isinstance(await world.resolve(), ApiError)
    assert world.unresolved == (create(),)
    assert not world.settled
    world.heal()
    assert await world.resolve() is None
    assert world.unresolved == ()


async def test_r9_an_unresolved_write_is_given_up_after_five_minutes():
    world = await lost(create(), happened=True)
    world.fail(INVALID)
    await asyncio.sleep(299)
    assert isinstance(await world.resolve(), ApiError)
    await asyncio.sleep(1)
    assert await world.resolve() is None
    assert world.settled


async def test_unresolved_writes_of_an_earlier_owner_of_the_name_are_ignored():
    world = await lost(create(), happened=True)
    assert await world.executor.resolve(OWNER, "uid-of-the-next") is None
    assert world.sent == []
