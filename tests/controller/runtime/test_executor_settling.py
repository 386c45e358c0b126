"""What becomes of writes whose answer was lost (R9)."""

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
    """A world in which the answer to this one write was lost."""
    world = world or World()
    world.fail(Lost.AFTER if happened else Lost.BEFORE)
    assert kinds([await world.outcome_of(action)]) == ["Unknown"]
    world.heal()
    world.api.requests.clear()
    return world


async def test_r9_a_lost_create_that_happened_waits_for_the_cache():
    world = await lost(create(), happened=True)
    assert await world.settle() is None
    assert world.unresolved == ()
    assert not world.settled
    world.cache.catch_up()
    assert world.settled
    assert world.sent == ["get vm"]


async def test_r9_a_lost_create_that_did_not_happen_is_settled():
    world = await lost(create(), happened=False)
    assert await world.settle() is None
    assert world.settled


async def test_r9_a_lost_create_whose_name_is_somebody_elses_is_settled():
    world = await lost(create(), happened=False)
    world.api.put(VMIS, document("vm", owner_uid="somebody-else"))
    assert await world.settle() is None
    assert world.settled


async def test_r9_a_lost_create_that_happened_and_is_being_deleted_waits_for_the_cache():
    world = World()
    world.api.finalizers = {VMIS: ["some/finalizer"]}
    await lost(create(), happened=True, world=world)
    world.api.remove(VMIS, key("vm"))
    assert await world.settle() is None
    assert not world.settled
    world.cache.catch_up()
    assert world.settled


async def test_r9_a_lost_create_that_the_cache_has_shown_is_not_asked_about():
    world = await lost(create(), happened=True)
    world.cache.catch_up()
    assert await world.settle() is None
    assert world.settled
    assert world.sent == []


@pytest.mark.parametrize("finalizers", [[], ["some/finalizer"]], ids=["at once", "later"])
async def test_r9_a_lost_delete_that_happened_waits_for_the_cache(finalizers: list[str]):
    world = World()
    uid = world.add("vm", finalizers=finalizers)
    await lost(delete("vm", uid), happened=True, world=world)
    assert await world.settle() is None
    assert world.unresolved == ()
    assert not world.settled
    world.cache.catch_up()
    assert world.settled


async def test_r9_a_lost_delete_that_did_not_happen_is_settled():
    world = World()
    uid = world.add("vm")
    await lost(delete("vm", uid), happened=False, world=world)
    assert await world.settle() is None
    assert world.settled


async def test_r9_a_lost_delete_whose_name_is_anothers_by_now_waits_for_the_cache():
    world = World()
    uid = world.add("vm")
    await lost(delete("vm", uid), happened=True, world=world)
    world.api.put(VMIS, document("vm"))
    assert await world.settle() is None
    assert not world.settled
    world.cache.catch_up(1)
    assert world.settled


@pytest.mark.parametrize("happened", [True, False])
async def test_r9_a_lost_patch_waits_until_the_cache_shows_what_the_server_has(happened: bool):
    world = World()
    world.add("vm")
    await lost(patch(labels={"a": "b"}), happened=happened, world=world)
    world.cache.catch_up()
    assert world.unresolved, "the cache cannot tell whose change it shows"
    assert await world.settle() is None
    assert world.settled


async def test_r9_a_lost_patch_of_what_is_gone_is_settled():
    world = World()
    world.add("vm")
    await lost(patch(labels={"a": "b"}), happened=True, world=world)
    world.api.remove(VMIS, key("vm"))
    assert await world.settle() is None
    assert world.settled


@pytest.mark.parametrize("fault", [UNREACHABLE, INVALID, BUSY, *IN_DOUBT])
async def test_r9_a_doubt_stays_while_the_server_cannot_be_asked(fault: Fault):
    world = await lost(create(), happened=True)
    world.fail(fault)
    assert isinstance(await world.settle(), ApiError)
    assert world.unresolved == (create(),)
    assert not world.settled
    world.heal()
    assert await world.settle() is None
    assert world.unresolved == ()


async def test_r9_a_doubt_that_nobody_can_clear_up_ends_after_five_minutes():
    world = await lost(create(), happened=True)
    world.fail(INVALID)
    await asyncio.sleep(299)
    assert isinstance(await world.settle(), ApiError)
    await asyncio.sleep(1)
    assert await world.settle() is None
    assert world.settled


async def test_what_a_former_owner_of_the_name_left_in_doubt_is_nobodys_business():
    world = await lost(create(), happened=True)
    assert await world.executor.settle(OWNER, "uid-of-the-next") is None
    assert world.sent == []
