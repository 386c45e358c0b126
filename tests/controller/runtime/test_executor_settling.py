"""What becomes of writes whose answer was lost (R9)."""

from __future__ import annotations

import asyncio

import pytest

from controller.kubevirt.resources import VMIS
from controller.runtime.plan import Action
from informers.errors import ApiError
from tests.controller.runtime.executor_setup import (
    BUSY,
    IN_DOUBT,
    INVALID,
    OWNER,
    UNREACHABLE,
    ExecutorSetup,
    create,
    delete,
    document,
    key,
    kinds,
    patch,
)
from tests.fakes.requests import Fault, Lost

pytestmark = pytest.mark.looptime


async def lost(action: Action, *, happened: bool, setup: ExecutorSetup | None = None) -> ExecutorSetup:
    """A setup in which the answer to this one write was lost."""
    setup = setup or ExecutorSetup()
    setup.fail(Lost.AFTER if happened else Lost.BEFORE)
    assert kinds([await setup.outcome_of(action)]) == ["Unknown"]
    setup.heal()
    setup.server.requests.clear()
    return setup


async def test_r9_a_lost_create_that_happened_waits_for_the_cache():
    setup = await lost(create(), happened=True)
    assert await setup.settle() is None
    assert setup.unresolved == ()
    assert not setup.settled
    setup.cache.catch_up()
    assert setup.settled
    assert setup.sent == ["get vm"]


async def test_r9_a_lost_create_that_did_not_happen_is_settled():
    setup = await lost(create(), happened=False)
    assert await setup.settle() is None
    assert setup.settled


async def test_r9_a_lost_create_whose_name_is_somebody_elses_is_settled():
    setup = await lost(create(), happened=False)
    setup.server.put(VMIS, document("vm", owner_uid="somebody-else"))
    assert await setup.settle() is None
    assert setup.settled


async def test_r9_a_lost_create_that_happened_and_is_being_deleted_waits_for_the_cache():
    setup = ExecutorSetup()
    setup.server.finalizers = {VMIS: ["some/finalizer"]}
    await lost(create(), happened=True, setup=setup)
    setup.server.remove(VMIS, key("vm"))
    assert await setup.settle() is None
    assert not setup.settled
    setup.cache.catch_up()
    assert setup.settled


async def test_r9_a_lost_create_that_the_cache_has_shown_is_not_asked_about():
    setup = await lost(create(), happened=True)
    setup.cache.catch_up()
    assert await setup.settle() is None
    assert setup.settled
    assert setup.sent == []


@pytest.mark.parametrize("finalizers", [[], ["some/finalizer"]], ids=["at once", "later"])
async def test_r9_a_lost_delete_that_happened_waits_for_the_cache(finalizers: list[str]):
    setup = ExecutorSetup()
    uid = setup.add("vm", finalizers=finalizers)
    await lost(delete("vm", uid), happened=True, setup=setup)
    assert await setup.settle() is None
    assert setup.unresolved == ()
    assert not setup.settled
    setup.cache.catch_up()
    assert setup.settled


async def test_r9_a_lost_delete_that_did_not_happen_is_settled():
    setup = ExecutorSetup()
    uid = setup.add("vm")
    await lost(delete("vm", uid), happened=False, setup=setup)
    assert await setup.settle() is None
    assert setup.settled


async def test_r9_a_lost_delete_whose_name_is_anothers_by_now_waits_for_the_cache():
    setup = ExecutorSetup()
    uid = setup.add("vm")
    await lost(delete("vm", uid), happened=True, setup=setup)
    setup.server.put(VMIS, document("vm"))
    assert await setup.settle() is None
    assert not setup.settled
    setup.cache.catch_up(1)
    assert setup.settled


@pytest.mark.parametrize("happened", [True, False])
async def test_r9_a_lost_patch_waits_until_the_cache_shows_what_the_server_has(happened: bool):
    setup = ExecutorSetup()
    setup.add("vm")
    await lost(patch(labels={"a": "b"}), happened=happened, setup=setup)
    setup.cache.catch_up()
    assert setup.unresolved, "the cache cannot tell whose change it shows"
    assert await setup.settle() is None
    assert setup.settled


async def test_r9_a_lost_patch_of_what_is_gone_is_settled():
    setup = ExecutorSetup()
    setup.add("vm")
    await lost(patch(labels={"a": "b"}), happened=True, setup=setup)
    setup.server.remove(VMIS, key("vm"))
    assert await setup.settle() is None
    assert setup.settled


@pytest.mark.parametrize("fault", [UNREACHABLE, INVALID, BUSY, *IN_DOUBT])
async def test_r9_a_doubt_stays_while_the_server_cannot_be_asked(fault: Fault):
    setup = await lost(create(), happened=True)
    setup.fail(fault)
    assert isinstance(await setup.settle(), ApiError)
    assert setup.unresolved == (create(),)
    assert not setup.settled
    setup.heal()
    assert await setup.settle() is None
    assert setup.unresolved == ()


async def test_r9_a_doubt_that_nobody_can_clear_up_ends_after_five_minutes():
    setup = await lost(create(), happened=True)
    setup.fail(INVALID)
    await asyncio.sleep(299)
    assert isinstance(await setup.settle(), ApiError)
    await asyncio.sleep(1)
    assert await setup.settle() is None
    assert setup.settled


async def test_what_a_former_owner_of_the_name_left_in_doubt_is_nobodys_business():
    setup = await lost(create(), happened=True)
    assert await setup.executor.settle(OWNER, "uid-of-the-next") is None
    assert setup.sent == []
