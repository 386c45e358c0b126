"""The outcome of a write for each answer of the server."""

import asyncio

import pytest

from controller.kubevirt.resources import VMIS
from controller.runtime.actions import Action, AlreadyThere, Missing, Rejected
from controller.runtime.execute.executor import FORGOTTEN_AFTER_S
from informers.errors import AlreadyExists, ApiError
from tests.controller.runtime.executor_setup import ExecutorSetup, create, delete, key, kinds, patch
from tests.controller.runtime.refusals import (
    ANOTHER,
    ANOTHER_IN_STORAGE,
    BUSY,
    GONE,
    IN_DOUBT,
    INVALID,
    MODIFIED,
    QUOTA_FULL,
    UNREACHABLE,
)
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.caches import LaggingCache
from tests.fakes.requests import Fault, refusal

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize("fault", [QUOTA_FULL, INVALID, BUSY, GONE, MODIFIED, UNREACHABLE])
async def test_r10_a_rejected_create_has_the_message_of_the_server(setup, fault: ApiError):
    setup.fail(fault)
    assert await setup.outcome_of(create()) == Rejected(create(), fault)
    assert setup.settled, "nothing was written, so nothing is awaited"


@pytest.mark.parametrize("fault", IN_DOUBT)
@pytest.mark.parametrize("verb", ["create", "delete", "patch"])
async def test_r9_a_write_with_an_inconclusive_answer_is_unknown(setup, verb: str, fault: Fault):
    uid = setup.add("vm")
    action = {"create": create("new"), "delete": delete("vm", uid), "patch": patch(labels={"a": "b"})}[verb]
    setup.fail(fault)
    assert kinds([await setup.outcome_of(action)]) == ["Unknown"]
    assert setup.unresolved == (action,)
    assert not setup.settled


async def test_a_create_in_a_terminating_namespace_is_rejected_finally(setup):
    setup.server.terminating.add("default")
    outcome = await setup.outcome_of(create())
    assert isinstance(outcome, Rejected)
    assert outcome.error.namespace_terminating
    sent = len(setup.server.requests)
    assert await setup.outcome_of(create("other")) == Rejected(create("other"), outcome.error)
    assert len(setup.server.requests) == sent, "one refusal is enough for all creates of an owner"
    setup.server.terminating.clear()
    await asyncio.sleep(FORGOTTEN_AFTER_S)
    assert kinds([await setup.outcome_of(create("other"))]) == ["Done"], "a restore can bring the namespace back"


@pytest.mark.parametrize("fault", [GONE, ANOTHER, ANOTHER_IN_STORAGE])
async def test_r10_a_delete_of_an_object_that_does_not_exist_is_missing(setup, fault: Fault):
    uid = setup.add("vm")
    setup.fail(fault)
    assert await setup.outcome_of(delete("vm", uid)) == Missing(delete("vm", uid))
    assert not setup.settled, "the cache still shows it"


async def test_r6_a_delete_does_not_change_another_object_of_the_same_name(setup):
    setup.add("vm")
    assert await setup.outcome_of(delete("vm", "of-the-one-before")) == Missing(delete("vm", "of-the-one-before"))
    assert setup.names == ["vm"]
    assert setup.settled


@pytest.mark.parametrize("fault", [MODIFIED, INVALID, BUSY, UNREACHABLE])
@pytest.mark.parametrize("action", [delete(), patch()], ids=["delete", "patch"])
async def test_other_errors_of_the_server_are_rejections(setup, action: Action, fault: ApiError):
    setup.fail(fault)
    assert await setup.outcome_of(action) == Rejected(action, fault)


async def test_a_patch_of_an_object_that_does_not_exist_is_missing():
    assert await ExecutorSetup().outcome_of(patch()) == Missing(patch())


async def test_r9_a_patch_of_an_older_version_is_rejected_and_changes_nothing(setup):
    setup.add("vm")
    outcome = await setup.outcome_of(patch(resourceVersion="1", labels={"a": "b"}))
    assert kinds([outcome]) == ["Rejected"]
    assert setup.server.objects(VMIS)[0].metadata.labels is None


async def test_r5_a_repeated_create_finds_its_object_and_makes_no_second_one(setup):
    setup.add("vm")
    assert await setup.outcome_of(create()) == AlreadyThere(create(), str(setup.server.version))
    assert setup.names == ["vm"]


async def test_r5_a_repeated_create_finds_its_object_even_if_it_is_being_deleted(setup):
    """The cache does not show the object yet. The key stays unsettled until the cache shows the object."""
    setup.add("vm", finalizers=["some/finalizer"])
    setup.server.remove(VMIS, key("vm"))
    assert kinds([await setup.outcome_of(create())]) == ["AlreadyThere"]
    assert not setup.settled
    setup.cache.catch_up()
    assert setup.settled


async def test_a_create_is_rejected_if_another_owner_has_the_name(setup):
    setup.add("vm", owner_uid="somebody-else")
    outcome = await setup.outcome_of(create())
    assert isinstance(outcome, Rejected)
    assert isinstance(outcome.error, AlreadyExists)


async def test_a_create_is_rejected_if_the_name_was_taken_and_is_free_again(setup):
    setup.server.fault_for = lambda request: (
        refusal(409, "AlreadyExists", "exists") if request.verb == "create" else None
    )
    outcome = await setup.outcome_of(create())
    assert isinstance(outcome, Rejected)
    assert isinstance(outcome.error, AlreadyExists)
    assert setup.settled


@pytest.mark.parametrize("fault", IN_DOUBT)
async def test_r9_a_create_is_unknown_if_the_owner_of_the_taken_name_cannot_be_read(setup, fault: Fault):
    setup.add("vm")
    setup.fail(fault, verb="get")
    setup.cache = LaggingCache(FakeApiServer(), VMIS)
    assert kinds([await setup.outcome_of(create())]) == ["Unknown"]
