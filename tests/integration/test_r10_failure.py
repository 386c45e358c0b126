"""R10: a refused create or delete appears in the status, is retried with backoff, and disappears after a success."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.controller_process import ReplicaSetNamespace, eventually, stays
from tests.integration.denied import denied
from tests.integration.quota import QUOTA, allow

pytestmark = pytest.mark.cluster


def failure_of(sets: ReplicaSetNamespace) -> dict[str, Any] | None:
    return sets.condition("ReplicaFailure")


def test_r10_a_full_quota_is_shown_with_the_servers_message_until_it_is_raised(sets: ReplicaSetNamespace) -> None:
    allow(sets, 0)
    sets.make_set(5)
    eventually(lambda: failure_of(sets), what="ReplicaFailure")
    allow(sets, 2)
    eventually(lambda: len(sets.alive()) == 2, what="the quota is full")
    eventually(lambda: failure_of(sets), what="ReplicaFailure")
    shown = failure_of(sets)
    assert shown is not None
    assert (shown["status"], shown["reason"]) == ("True", "FailedCreate")
    assert "exceeded quota: few" in shown["message"]
    assert QUOTA in shown["message"]
    eventually(lambda: sets.status()["replicas"] == 2, what="the created VMIs count")
    tried = len(sets.requests("create"))
    eventually(lambda: len(sets.requests("create")) > tried, what="another try")
    again = failure_of(sets)
    assert again is not None
    assert again["lastTransitionTime"] == shown["lastTransitionTime"]
    allow(sets, 10)
    sets.wait_for(5, within_s=90)  # the delay before the next try may be as long as the test until now
    eventually(lambda: failure_of(sets) is None, what="ReplicaFailure is removed")
    assert [each["type"] for each in sets.status()["conditions"]] == ["Reconciling"], "the VMIs do not run"


def test_r10_a_full_quota_causes_no_hot_loop_and_few_status_writes(sets: ReplicaSetNamespace) -> None:
    allow(sets, 0)
    sets.make_set(100)
    eventually(lambda: failure_of(sets), what="ReplicaFailure")
    stays(lambda: not sets.alive(), for_s=4)
    eventually(lambda: len(sets.requests("create")) > 3, what="some tries")
    # The backoff starts at 5 ms and doubles: ten tries in five seconds, and 14 in 80 seconds, with one create each.
    assert len(sets.requests("create")) < 15
    assert {record.code for record in sets.requests("create")} == {403}
    assert len(sets.requests("patch")) <= 3


def test_r10_a_delete_that_admission_refuses_is_shown_until_it_is_allowed(sets: ReplicaSetNamespace) -> None:
    sets.make_set(2)
    sets.wait_for(2)
    name = next(iter(sets.alive()))
    with denied(sets, "DELETE", "virtualmachineinstances", name=name, message="not on a Friday"):
        sets.change_set({"spec": {"replicas": 1}})
        shown = eventually(lambda: failure_of(sets), what="ReplicaFailure")
        assert shown["reason"] == "FailedDelete"
        assert "not on a Friday" in shown["message"]
        assert len(sets.alive()) == 2
    sets.wait_for(1, within_s=90)
    eventually(lambda: failure_of(sets) is None, what="ReplicaFailure is removed")
