"""The executor resolves writes whose answer was lost (R9)."""

import asyncio

import pytest
from msgspec.structs import replace

from controller.kubevirt.resources import VMIS
from controller.runtime.actions import Action
from controller.runtime.execute.executor import LOOKUPS
from informers.errors import ApiError
from tests.controller.runtime.executor_setup import OWNER, ExecutorSetup, create, delete, document, key, kinds, patch
from tests.controller.runtime.refusals import BUSY, IN_DOUBT, INVALID, UNREACHABLE
from tests.fakes.requests import Fault, Lost

pytestmark = pytest.mark.looptime


async def lost(action: Action, *, happened: bool, setup: ExecutorSetup | None = None) -> ExecutorSetup:
    """A setup in which the answer of this write was lost."""
    setup = setup or ExecutorSetup()
    setup.fail(Lost.AFTER if happened else Lost.BEFORE)
    assert kinds([await setup.outcome_of(action)]) == ["Unknown"]
    setup.heal()
    setup.server.requests.clear()
    return setup


async def test_r9_a_lost_create_that_happened_waits_for_the_cache():
    setup = await lost(create(), happened=True)
    assert await setup.resolve() is None
    assert setup.unresolved == ()
    assert not setup.settled
    setup.cache.catch_up()
    assert setup.settled
    assert setup.sent == ["get vm"]


@pytest.mark.parametrize("is_taken", [False, True], ids=["free", "another owner has the name"])
async def test_r9_a_lost_create_that_did_not_happen_is_settled(is_taken: bool):
    setup = await lost(create(), happened=False)
    if is_taken:
        setup.server.put(VMIS, document("vm", owner_uid="somebody-else"))
    assert await setup.resolve() is None
    assert setup.settled


async def test_r9_a_lost_create_that_happened_and_is_being_deleted_waits_for_the_cache(setup):
    setup.server.finalizers = {VMIS: ["some/finalizer"]}
    await lost(create(), happened=True, setup=setup)
    setup.server.remove(VMIS, key("vm"))
    assert await setup.resolve() is None
    assert not setup.settled
    setup.cache.catch_up()
    assert setup.settled


async def test_r9_a_lost_create_that_the_cache_has_shown_is_not_asked_about():
    setup = await lost(create(), happened=True)
    setup.cache.catch_up()
    assert await setup.resolve() is None
    assert setup.settled
    assert setup.sent == []


@pytest.mark.parametrize("finalizers", [[], ["some/finalizer"]], ids=["at once", "later"])
async def test_r9_a_lost_delete_that_happened_waits_for_the_cache(setup, finalizers: list[str]):
    await lost(delete("vm", setup.add("vm", finalizers=finalizers)), happened=True, setup=setup)
    assert await setup.resolve() is None
    assert setup.unresolved == ()
    assert not setup.settled
    setup.cache.catch_up()
    assert setup.settled


async def test_r9_a_lost_delete_that_did_not_happen_is_settled(setup):
    await lost(delete("vm", setup.add("vm")), happened=False, setup=setup)
    assert await setup.resolve() is None
    assert setup.settled


async def test_r9_a_lost_delete_whose_name_has_a_new_object_waits_for_the_cache(setup):
    await lost(delete("vm", setup.add("vm")), happened=True, setup=setup)
    setup.server.put(VMIS, document("vm"))
    assert await setup.resolve() is None
    assert not setup.settled
    setup.cache.catch_up(1)
    assert setup.settled


@pytest.mark.parametrize("happened", [True, False])
async def test_r9_a_lost_patch_waits_until_the_cache_shows_the_version_of_the_server(setup, happened: bool):
    setup.add("vm")
    await lost(patch(labels={"a": "b"}), happened=happened, setup=setup)
    setup.cache.catch_up()
    assert setup.unresolved, "the cache cannot tell whose change it shows"
    assert await setup.resolve() is None
    assert setup.settled


@pytest.mark.parametrize("happened", [True, False])
async def test_r9_after_a_lost_removal_of_a_finalizer_the_finalizer_may_be_removed_again(setup, happened: bool):
    uid = setup.add("vm")
    setup.server.change(VMIS, key("vm"), {"metadata": {"finalizers": ["ours"]}})
    await lost(replace(patch(finalizers=None), uid=uid, finalizer="ours"), happened=happened, setup=setup)
    setup.cache.catch_up()
    assert await setup.resolve() is None
    assert setup.settled


async def test_r9_a_lost_patch_of_a_deleted_object_is_settled(setup):
    setup.add("vm")
    await lost(patch(labels={"a": "b"}), happened=True, setup=setup)
    setup.server.remove(VMIS, key("vm"))
    assert await setup.resolve() is None
    assert setup.settled


@pytest.mark.parametrize("fault", [UNREACHABLE, INVALID, BUSY, *IN_DOUBT])
async def test_r9_a_write_stays_unresolved_while_the_server_does_not_answer(fault: Fault):
    setup = await lost(create(), happened=True)
    setup.fail(fault)
    assert isinstance(await setup.resolve(), ApiError)
    assert setup.unresolved == (create(),)
    assert not setup.settled
    setup.heal()
    assert await setup.resolve() is None
    assert setup.unresolved == ()


async def test_r9_an_unresolved_write_is_given_up_after_five_minutes():
    setup = await lost(create(), happened=True)
    setup.fail(INVALID)
    await asyncio.sleep(299)
    assert isinstance(await setup.resolve(), ApiError)
    await asyncio.sleep(1)
    assert await setup.resolve() is None
    assert setup.settled


async def test_unresolved_writes_of_an_earlier_owner_of_the_name_are_ignored():
    setup = await lost(create(), happened=True)
    assert await setup.executor.resolve(OWNER, "uid-of-the-next") is None
    assert setup.sent == []


async def with_lost_creates(count: int) -> ExecutorSetup:
    setup = ExecutorSetup()
    setup.fail(Lost.AFTER)
    for index in range(count):
        await setup.outcome_of(create(f"vm-{index}"))
    assert len(setup.unresolved) == count
    setup.heal()
    setup.server.requests.clear()
    return setup


async def test_r9_many_lost_writes_are_looked_up_in_parallel():
    setup = await with_lost_creates(4 * LOOKUPS)
    setup.server.most_at_once = 0
    assert await setup.resolve() is None
    assert setup.unresolved == ()
    assert setup.server.most_at_once == LOOKUPS


async def test_r9_the_look_up_of_lost_writes_ends_at_the_first_failure():
    setup = await with_lost_creates(4 * LOOKUPS)
    setup.fail(BUSY)
    assert await setup.resolve() is not None
    assert len(setup.sent) == 1
    assert len(setup.unresolved) == 4 * LOOKUPS
