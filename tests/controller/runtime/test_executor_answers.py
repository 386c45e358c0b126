"""The outcome of a write for each answer of the server. Writes whose answer was lost are resolved later (R9)."""

import asyncio
from itertools import product

import msgspec
import pytest
from msgspec.structs import replace

from controller.kubevirt.resources import VMIS
from controller.runtime.actions import Action, AlreadyThere, Missing, Rejected
from controller.runtime.execute.executor import LOOKUPS
from controller.runtime.execute.refusals import FIRST_WAIT_S, LONGEST_WAIT_S
from informers.errors import AlreadyExists, ApiError
from tests.controller.runtime import refusals
from tests.controller.runtime.executor_setup import OWNER_UID, create, creates, delete, document, key, kinds, patch
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.caches import LaggingCache
from tests.fakes.requests import Fault, refusal

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize("fault", refusals.IN_DOUBT)
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
    outcome = await setup.rejected(create())
    assert outcome.error.namespace_terminating
    sent = len(setup.server.requests)
    again = await setup.outcome_of(create("other"))
    assert isinstance(again, Rejected)
    assert (again.action, again.error, again.is_repeated) == (create("other"), outcome.error, True)
    assert len(setup.server.requests) == sent, "one refusal is enough for all creates of an owner"
    setup.server.terminating.clear()
    await asyncio.sleep(LONGEST_WAIT_S)
    assert kinds([await setup.outcome_of(create("other"))]) == ["Done"], "a restore can bring the namespace back"


@pytest.mark.parametrize("fault", [refusals.GONE, refusals.ANOTHER, refusals.ANOTHER_IN_STORAGE])
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


REFUSED = product(
    (create(), delete(), patch()),
    (refusals.MODIFIED, refusals.INVALID, refusals.BUSY, refusals.UNREACHABLE, refusals.QUOTA_FULL),
)


@pytest.mark.parametrize(("action", "fault"), [*REFUSED, (create(), refusals.GONE)])
async def test_r10_a_rejected_write_has_the_message_of_the_server(setup, action: Action, fault: ApiError):
    setup.fail(fault)
    outcome = await setup.rejected(action)
    assert (outcome.error, outcome.message) == (fault, str(fault))
    assert setup.settled, "nothing was written, so nothing is awaited"


async def test_r5_a_repeated_create_finds_its_object_and_makes_no_second_one(setup):
    setup.add("vm")
    assert await setup.outcome_of(create()) == AlreadyThere(create(), str(setup.server.version))
    assert setup.names == ["vm"]


async def test_a_create_is_rejected_if_the_name_was_taken_and_is_free_again(setup):
    setup.server.fault_for = lambda request: (
        refusal(409, "AlreadyExists", "exists") if request.verb == "create" else None
    )
    outcome = await setup.rejected(create())
    assert isinstance(outcome.error, AlreadyExists)
    assert setup.settled


@pytest.mark.parametrize("fault", refusals.IN_DOUBT)
async def test_r9_a_create_is_unknown_if_the_owner_of_the_taken_name_cannot_be_read(setup, fault: Fault):
    setup.add("vm")
    setup.fail(fault, verb="get")
    setup.cache = LaggingCache(FakeApiServer(), VMIS)
    assert kinds([await setup.outcome_of(create())]) == ["Unknown"]


LOST: dict[str, tuple[str, bool, str, bool]] = {
    # name: (verb, whether the write happened, what happens then, whether the cache is awaited)
    "a create that happened": ("create", True, "", True),
    "a create that happened and is being deleted": ("create", True, "deleted", True),
    "a create that did not happen": ("create", False, "", False),
    "a create of a name that another owner has": ("create", False, "taken", False),
    "a delete that happened": ("delete", True, "", True),
    "a delete that a finalizer holds": ("delete", True, "held", True),
    "a delete whose name has a new object": ("delete", True, "made again", True),
    "a delete that did not happen": ("delete", False, "", False),
    "a patch of a deleted object": ("patch", True, "deleted", False),
}


@pytest.mark.parametrize(("verb", "happened", "then", "awaited"), LOST.values(), ids=LOST)
async def test_r9_a_lost_write_is_looked_up_and_the_cache_is_awaited_if_it_happened(
    setup, verb: str, happened: bool, then: str, awaited: bool
):
    if then == "held" or (verb, then) == ("create", "deleted"):
        setup.server.finalizers = {VMIS: ["some/finalizer"]}
    uid = "" if verb == "create" else setup.add("vm")
    action = {"create": create(), "delete": delete("vm", uid), "patch": patch(labels={"a": "b"})}[verb]
    await setup.lose(action, happened=happened)
    if then == "deleted":
        setup.server.remove(VMIS, key("vm"))
    elif then in ("taken", "made again"):
        setup.server.put(VMIS, document("vm", owner_uid="another" if then == "taken" else OWNER_UID))
    assert await setup.resolve() is None
    assert (setup.unresolved, setup.settled) == ((), not awaited)
    setup.cache.catch_up()
    assert setup.settled
    assert setup.sent == ["get vm"]


@pytest.mark.parametrize("happened", [True, False])
async def test_r9_a_lost_patch_waits_until_the_cache_shows_the_version_of_the_server(setup, happened: bool):
    setup.add("vm")
    await setup.lose(patch(labels={"a": "b"}), happened=happened)
    setup.cache.catch_up()
    assert setup.unresolved, "the cache cannot tell whose change it shows"
    assert await setup.resolve() is None
    assert setup.settled


@pytest.mark.parametrize("happened", [True, False])
async def test_r9_after_a_lost_removal_of_a_finalizer_the_finalizer_may_be_removed_again(setup, happened: bool):
    uid = setup.add("vm")
    setup.server.change(VMIS, key("vm"), {"metadata": {"finalizers": ["ours"]}})
    await setup.lose(replace(patch(finalizers=None), uid=uid, finalizer="ours"), happened=happened)
    setup.cache.catch_up()
    assert await setup.resolve() is None
    assert setup.settled


@pytest.mark.parametrize("fault", [refusals.UNREACHABLE, refusals.INVALID, refusals.BUSY, *refusals.IN_DOUBT])
async def test_r9_a_write_stays_unresolved_while_the_server_does_not_answer(setup, fault: Fault):
    await setup.lose(create())
    setup.fail(fault)
    assert isinstance(await setup.resolve(), ApiError)
    assert setup.unresolved == (create(),)
    assert not setup.settled
    setup.heal()
    assert await setup.resolve() is None
    assert setup.unresolved == ()


async def test_r9_many_lost_writes_are_looked_up_in_parallel(setup):
    await setup.lose(*creates(4 * LOOKUPS))
    setup.server.most_at_once = 0
    assert await setup.resolve() is None
    assert setup.unresolved == ()
    assert setup.server.most_at_once == LOOKUPS


async def test_r9_the_look_up_of_lost_writes_ends_at_the_first_failure(setup):
    await setup.lose(*creates(4 * LOOKUPS))
    setup.fail(refusals.BUSY)
    assert await setup.resolve() is not None
    assert len(setup.sent) == 1
    assert len(setup.unresolved) == 4 * LOOKUPS


@pytest.mark.parametrize("left", [{}, {"a": "other"}], ids=["removed", "changed"])
async def test_p22_a_patch_that_a_policy_takes_back_is_refused_and_names_what_is_missing(setup, left):
    setup.add("vm")
    setup.server.check_patch = lambda resource, before, after: after["metadata"].update(labels=left)
    outcome = await setup.rejected(patch("vm", labels={"a": "b", "gone": None}))
    assert outcome.message == "a policy takes a of vm back"
    assert outcome.wait_s == FIRST_WAIT_S


async def test_p22_a_finalizer_and_an_owner_that_a_policy_takes_back_are_missing_too(setup):
    setup.add("vm")
    setup.server.check_patch = lambda resource, before, after: after["metadata"].update(
        finalizers=[], ownerReferences=[]
    )
    owner = {"apiVersion": "v1", "kind": "Pool", "name": "web", "uid": OWNER_UID}
    body = msgspec.json.encode({"metadata": {"finalizers": ["a/b"], "ownerReferences": [owner]}})
    outcome = await setup.rejected(replace(patch("vm"), body=body))
    assert outcome.message == "a policy takes a/b, ownerReferences of vm back"
