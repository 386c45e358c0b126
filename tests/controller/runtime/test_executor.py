"""The executor: the order of the actions, the slow start, and the failures that end a plan."""

import asyncio
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from controller.apimachinery.label_selectors import LabelSelector, parse_selector
from controller.kubevirt.resources import VMIS
from controller.pool.scale import Restored
from controller.runtime.actions import ConfirmFree
from controller.runtime.execute.executor import PARALLEL
from tests.controller.runtime.executor_setup import OWNER, confirm, creates, delete, document, key, kinds, patch
from tests.controller.runtime.refusals import BUSY, GONE, IN_DOUBT, INVALID, UNREACHABLE
from tests.fakes.requests import Fault, Lost, refusal

OWNED = document("web-0")["metadata"]["ownerReferences"]

pytestmark = pytest.mark.looptime


async def test_r4_the_number_of_parallel_creates_doubles_with_each_round_trip(setup):
    starts = Counter()
    setup.server.fault_for = lambda request: starts.update([round(asyncio.get_running_loop().time(), 3)])
    outcomes = await setup.carry_out(creates(100))
    assert kinds(outcomes) == ["Done"] * 100
    assert list(starts.values()) == [1, 2, 4, 8, 16, 32, 37]


async def test_the_number_of_parallel_creates_is_limited(setup):
    await setup.carry_out(creates(4 * PARALLEL))
    assert setup.server.most_at_once == PARALLEL
    assert len(setup.names) == 4 * PARALLEL


async def test_r4_a_full_quota_costs_one_request(setup):
    setup.server.quota[VMIS] = 0
    outcomes = await setup.carry_out(creates(250))
    assert kinds(outcomes) == ["Rejected"] + ["Skipped"] * 249
    assert len(setup.sent) == 1


async def test_a_stage_starts_when_the_one_before_it_has_succeeded(setup):
    uid = setup.add("old")
    ends: list[float] = []
    setup.server.fault_for = lambda request: ends.append(asyncio.get_running_loop().time())
    outcomes = await setup.carry_out([patch("old", labels={"a": "b"})], creates(1), [delete("old", uid)])
    assert kinds(outcomes) == ["Done"] * 3
    assert setup.sent == ["patch old", "create vm-000", "delete old"]
    assert [round(later - earlier, 3) for earlier, later in pairwise(ends)] == [0.01, 0.01]


@pytest.mark.parametrize("fault", [INVALID, UNREACHABLE, Lost.AFTER])
async def test_nothing_is_tried_after_a_stage_that_failed(setup, fault: Fault):
    uid = setup.add("old")
    setup.fail(fault, name="vm-000")
    outcomes = await setup.carry_out(creates(1), [delete("old", uid)], creates(3)[1:])
    assert kinds(outcomes)[1:] == ["Skipped"] * 3
    assert setup.sent == ["create vm-000"]


@pytest.mark.parametrize(
    ("fault", "outcome"), [(INVALID, "Rejected"), (refusal(500, "InternalError", "failed calling webhook"), "Unknown")]
)
async def test_all_deletes_are_tried_even_if_one_fails(setup, fault: Fault, outcome: str):
    deletes = [delete(f"vm-{index}", setup.add(f"vm-{index}")) for index in range(2 * PARALLEL)]
    setup.fail(fault, name="vm-0")
    assert kinds(await setup.carry_out(deletes)) == [outcome] + ["Done"] * (2 * PARALLEL - 1)
    assert (setup.names, setup.server.most_at_once) == (["vm-0"], PARALLEL)


OVERLOADED = [BUSY, refusal(503, "ServiceUnavailable", "no luck"), refusal(504, "Timeout", "no luck")]


@pytest.mark.parametrize("fault", [UNREACHABLE, Lost.BEFORE, *OVERLOADED])
async def test_r10_during_an_outage_the_remaining_deletes_are_not_tried(setup, fault: Fault):
    """During an outage, more delete requests only wait for their timeouts or increase the load on the API server."""
    setup.fail(fault)
    outcomes = await setup.carry_out([delete(f"vm-{index}") for index in range(5 * PARALLEL)])
    assert len(setup.sent) == 1
    assert kinds(outcomes)[1:] == ["Skipped"] * (5 * PARALLEL - 1)


async def test_the_plan_continues_if_the_owner_is_confirmed(setup):
    assert kinds(await setup.carry_out([confirm(setup.add("web"), "web")], creates(1))) == ["Done", "Done"]


async def test_r2_nothing_is_done_if_the_server_has_another_owner_than_the_cache(setup):
    uid = setup.add("web")
    setup.server.remove(VMIS, key("web"))
    setup.server.put(VMIS, document("web"))
    outcomes = await setup.carry_out([confirm(uid, "web")], [patch("orphan")], creates(1))
    assert kinds(outcomes) == ["Rejected", "Skipped", "Skipped"]
    assert outcomes[0].message == "default/web was replaced by another object of the same name"
    assert setup.sent == ["get web"]


FREE: dict[str, tuple[dict[str, Any], bool]] = {
    "restored": ({}, False),
    "other labels": ({"labels": {"app": "other"}}, True),
    "owned": ({"ownerReferences": OWNED}, True),
    "another name": ({"name": "website-0"}, True),
}


@pytest.mark.parametrize(("changes", "is_free"), FREE.values(), ids=FREE)
async def test_p3_nothing_is_created_beside_an_object_without_an_owner_that_the_server_has(setup, changes, is_free):
    setup.server.put(VMIS, {"metadata": {"name": "web-0", "namespace": "default", "labels": {"app": "web"}} | changes})
    selector = parse_selector(LabelSelector(match_labels={"app": "web"}), field="spec.selector")
    taken = Restored(OWNER.name, selector)
    confirm_free = ConfirmFree(resource=VMIS, key=OWNER, selector=str(selector), taken=taken, why="new")
    outcomes = await setup.carry_out([confirm_free], creates(1))
    assert kinds(outcomes) == (["Done", "Done"] if is_free else ["Rejected", "Skipped"])


@pytest.mark.parametrize("fault", [GONE, BUSY, INVALID, UNREACHABLE, *IN_DOUBT])
async def test_r2_nothing_is_done_while_the_owner_cannot_be_confirmed(setup, fault: Fault):
    uid = setup.add("web")
    setup.fail(fault, verb="get")
    assert kinds(await setup.carry_out([confirm(uid, "web")], creates(1))) == ["Rejected", "Skipped"]
    assert setup.unresolved == ()


@pytest.mark.parametrize("after_ms", range(1, 60, 4))
async def test_a_cancelled_executor_sends_no_more_requests_and_leaves_no_task(setup, after_ms: int):
    stages = [[delete(f"old-{index}", setup.add(f"old-{index}")) for index in range(60)], creates(40)]
    before = asyncio.all_tasks()
    task = asyncio.create_task(setup.carry_out(*stages))
    await asyncio.sleep(after_ms / 1000)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before
    sent = len(setup.sent)
    await asyncio.sleep(10)
    assert len(setup.sent) == sent
