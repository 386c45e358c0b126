"""What the server's answers to writes mean."""

from __future__ import annotations

import pytest

from controller.kubevirt.resources import VMIS
from controller.runtime.plan import Action, AlreadyThere, Missing, Rejected
from informers.errors import AlreadyExists, ApiError
from tests.controller.runtime.executor_setup import (
    ANOTHER,
    ANOTHER_IN_STORAGE,
    BUSY,
    GONE,
    IN_DOUBT,
    INVALID,
    MODIFIED,
    QUOTA_FULL,
    UNREACHABLE,
    ExecutorSetup,
    create,
    delete,
    key,
    kinds,
    patch,
)
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.caches import LaggingCache
from tests.fakes.requests import Fault, refusal

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize("fault", [QUOTA_FULL, INVALID, BUSY, GONE, MODIFIED, UNREACHABLE])
async def test_r10_a_create_that_the_server_refuses_is_refused_with_its_words(fault: ApiError):
    setup = ExecutorSetup()
    setup.fail(fault)
    assert await setup.outcome_of(create()) == Rejected(create(), fault)
    assert setup.settled, "nothing was written, so nothing is awaited"


@pytest.mark.parametrize("fault", IN_DOUBT)
@pytest.mark.parametrize("verb", ["create", "delete", "patch"])
async def test_r9_a_write_whose_answer_does_not_tell_is_in_doubt(verb: str, fault: Fault):
    setup = ExecutorSetup()
    uid = setup.add("vm")
    action = {"create": create("new"), "delete": delete("vm", uid), "patch": patch(labels={"a": "b"})}[verb]
    setup.fail(fault)
    assert kinds([await setup.outcome_of(action)]) == ["Unknown"]
    assert setup.unresolved == (action,)
    assert not setup.settled


async def test_a_create_in_a_namespace_that_goes_away_is_refused_for_good():
    setup = ExecutorSetup()
    setup.server.terminating.add("default")
    outcome = await setup.outcome_of(create())
    assert isinstance(outcome, Rejected)
    assert outcome.error.namespace_terminating


@pytest.mark.parametrize("fault", [GONE, ANOTHER, ANOTHER_IN_STORAGE])
async def test_r10_what_was_to_be_deleted_and_is_gone_has_vanished(fault: Fault):
    setup = ExecutorSetup()
    uid = setup.add("vm")
    setup.fail(fault)
    assert await setup.outcome_of(delete("vm", uid)) == Missing(delete("vm", uid))
    assert not setup.settled, "the cache still shows it"


async def test_r6_a_delete_does_not_touch_another_object_of_the_name():
    setup = ExecutorSetup()
    setup.add("vm")
    assert await setup.outcome_of(delete("vm", "of-the-one-before")) == Missing(delete("vm", "of-the-one-before"))
    assert setup.names == ["vm"]
    assert setup.settled


@pytest.mark.parametrize("fault", [MODIFIED, INVALID, BUSY, UNREACHABLE])
@pytest.mark.parametrize("action", [delete(), patch()], ids=["delete", "patch"])
async def test_what_the_server_refuses_otherwise_is_refused(action: Action, fault: ApiError):
    setup = ExecutorSetup()
    setup.fail(fault)
    assert await setup.outcome_of(action) == Rejected(action, fault)


async def test_what_was_to_be_patched_and_is_gone_has_vanished():
    assert await ExecutorSetup().outcome_of(patch()) == Missing(patch())


async def test_r9_a_patch_on_an_older_version_is_refused_and_changes_nothing():
    setup = ExecutorSetup()
    setup.add("vm")
    outcome = await setup.outcome_of(patch(resourceVersion="1", labels={"a": "b"}))
    assert kinds([outcome]) == ["Rejected"]
    assert setup.server.objects(VMIS)[0].metadata.labels is None


async def test_r5_a_create_that_happened_before_is_recognised_and_makes_no_twin():
    setup = ExecutorSetup()
    setup.add("vm")
    assert await setup.outcome_of(create()) == AlreadyThere(create(), str(setup.server.version))
    assert setup.names == ["vm"]


async def test_r5_a_create_that_happened_before_is_recognised_though_it_is_being_deleted_by_now():
    """The cache does not show it, or its name would not have been chosen: that has to come first."""
    setup = ExecutorSetup()
    setup.add("vm", finalizers=["some/finalizer"])
    setup.server.remove(VMIS, key("vm"))
    assert kinds([await setup.outcome_of(create())]) == ["AlreadyThere"]
    assert not setup.settled
    setup.cache.catch_up()
    assert setup.settled


async def test_a_name_that_somebody_else_has_is_refused():
    setup = ExecutorSetup()
    setup.add("vm", owner_uid="somebody-else")
    outcome = await setup.outcome_of(create())
    assert isinstance(outcome, Rejected)
    assert isinstance(outcome.error, AlreadyExists)


async def test_a_name_that_was_taken_and_is_free_again_is_refused_for_now():
    setup = ExecutorSetup()
    setup.server.fault_for = lambda request: (
        refusal(409, "AlreadyExists", "exists") if request.verb == "create" else None
    )
    outcome = await setup.outcome_of(create())
    assert isinstance(outcome, Rejected)
    assert isinstance(outcome.error, AlreadyExists)
    assert setup.settled


@pytest.mark.parametrize("fault", IN_DOUBT)
async def test_r9_a_name_that_is_taken_by_nobody_knows_whom_is_in_doubt(fault: Fault):
    setup = ExecutorSetup()
    setup.add("vm")
    setup.fail(fault, verb="get")
    setup.cache = LaggingCache(FakeApiServer(), VMIS)
    assert kinds([await setup.outcome_of(create())]) == ["Unknown"]
