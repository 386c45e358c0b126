"""A delete whose plan is older than the object on the server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.kubevirt.resources import VMIS
from controller.runtime.plan import Delete, Missing
from informers.errors import Conflict
from tests.controller.runtime.executor_changes import when
from tests.controller.runtime.executor_setup import BUSY, GONE, MODIFIED, ExecutorSetup, key, kinds
from tests.fakes.requests import Fault, Request

pytestmark = pytest.mark.looptime

OTHER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "other", "controller": True}
CHANGES = {
    "another controller": {"ownerReferences": [OTHER]},
    "no controller": {"ownerReferences": None},
    "another label": {"labels": {"app": "other"}},
    "a mark": {"annotations": {"vmherd.dev/protect": "true"}},
}


def planned(setup: ExecutorSetup, uid: str) -> Delete:
    """A delete that was planned with the object in the cache."""
    [seen] = [vmi.metadata for vmi in setup.cache.store.values() if vmi.metadata.uid == uid]
    return Delete(resource=VMIS, key=key("vm"), uid=uid, why="surplus", seen=seen)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_r6_an_object_that_a_user_detached_or_marked_since_the_plan_is_not_deleted(change: dict[str, object]):
    setup = ExecutorSetup()
    action = planned(setup, setup.add("vm"))
    setup.server.change(VMIS, key("vm"), {"metadata": change})
    outcome = await setup.outcome_of(action)
    assert kinds([outcome]) == ["Rejected"]
    assert isinstance(outcome.error, Conflict)
    assert setup.names == ["vm"]


async def test_r6_an_object_whose_status_alone_changed_since_the_plan_is_deleted():
    setup = ExecutorSetup()
    action = planned(setup, setup.add("vm"))
    setup.server.change(VMIS, key("vm"), {"status": {"phase": "Running"}})
    assert kinds([await setup.outcome_of(action)]) == ["Done"]
    assert setup.names == []
    assert setup.sent == ["delete vm", "get vm", "delete vm"]


async def test_r6_an_object_that_did_not_change_since_the_plan_costs_one_request():
    setup = ExecutorSetup()
    action = planned(setup, setup.add("vm"))
    assert kinds([await setup.outcome_of(action)]) == ["Done"]
    assert setup.sent == ["delete vm"]


async def test_r6_an_object_that_changes_before_each_delete_stays_until_the_next_plan():
    setup = ExecutorSetup()
    action = planned(setup, setup.add("vm"))

    def touch() -> None:
        setup.server.change(VMIS, key("vm"), {"status": {"seen": str(setup.server.version)}})

    setup.server.fault_for = when("delete", touch, times=10)
    outcome = await setup.outcome_of(action)
    assert kinds([outcome]) == ["Rejected"]
    assert setup.sent.count("delete vm") == 4


@pytest.mark.parametrize("finalizers", [None, ["example.org/theirs"]], ids=["gone", "terminating"])
async def test_r6_an_object_that_another_client_deleted_since_the_plan_is_missing(finalizers: list[str] | None):
    setup = ExecutorSetup()
    action = planned(setup, setup.add("vm", finalizers=finalizers))
    setup.server.fault_for = fails_once(MODIFIED, lambda: setup.server.remove(VMIS, key("vm")))
    assert await setup.outcome_of(action) == Missing(action)


async def test_r6_an_object_that_was_replaced_since_the_plan_is_missing():
    setup = ExecutorSetup()
    action = planned(setup, setup.add("vm"))

    def replace() -> None:
        setup.server.remove(VMIS, key("vm"))
        setup.add("vm")

    setup.server.fault_for = fails_once(MODIFIED, replace)
    assert await setup.outcome_of(action) == Missing(action)
    assert setup.names == ["vm"]


async def test_r9_a_delete_whose_second_look_fails_did_not_happen():
    setup = ExecutorSetup()
    action = planned(setup, setup.add("vm"))
    faults: dict[str, Fault] = {"delete": MODIFIED, "get": BUSY}
    setup.server.fault_for = lambda request: faults.get(request.verb)
    assert kinds([await setup.outcome_of(action)]) == ["Rejected"]
    faults["get"] = GONE
    assert await setup.outcome_of(action) == Missing(action)


def fails_once(fault: Fault, act: Callable[[], object]) -> Callable[[Request], Fault | None]:
    """Fail the first request, and let another client act before the second request."""
    requests = 0

    def fault_for(_request: Request) -> Fault | None:
        nonlocal requests
        requests += 1
        if requests == 2:
            act()
        return fault if requests == 1 else None

    return fault_for
