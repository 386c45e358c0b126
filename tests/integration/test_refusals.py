"""R10, P4, P17, P18: what the server refuses is in the status and in Events, and is tried again with a delay."""

import pytest

from tests.controlplane.namespace import Namespace
from tests.controlplane.refusals import MESSAGE, allow, denied
from tests.controlplane.waits import eventually, reacts

pytestmark = pytest.mark.cluster

AGAIN_S = 90.0
"""The delay before the next try may be as long as the test until then."""


def test_r10_p4_a_full_quota_causes_no_hot_loop_few_status_writes_and_one_event(owner: Namespace) -> None:
    allow(owner, 0)
    owner.make(100)
    condition = reacts(lambda: owner.condition("ReplicaFailure"), what="the failure is in the status")
    assert condition["reason"] in ("FailedCreate", "FailedScaleOut")
    assert "exceeded quota: few" in condition["message"]
    reacts(lambda: owner.answers("create").total() > 3, what="the create is repeated")
    owner.settle(events=True)  # the next try is not soon
    # The backoff starts at 5 ms and doubles: ten tries in five seconds, and 14 in 80 seconds, with one create each.
    assert owner.answers("create").total() < 15
    assert {code for _, code in owner.answers("create")} == {403}
    assert sum(record.subresource == "status" for record in owner.requests("patch")) <= 3
    [event] = [event for event in owner.events() if event["reason"] == "FailedCreate"]
    assert event["count"] > 1
    assert not owner.all_of(owner.members)()


def test_r10_p18_a_delete_that_admission_refuses_is_shown_until_it_is_allowed(owner: Namespace) -> None:
    owner.make(1)
    owner.wait_ready(1)
    [name] = owner.all_of(owner.members)()
    with denied(owner, "DELETE", owner.members, name=name):
        owner.scale(0)
        shown = reacts(lambda: owner.condition("ReplicaFailure"), what="ReplicaFailure")
        assert shown["reason"] in ("FailedDelete", "FailedScaleIn")
        assert MESSAGE in shown["message"]
        owner.settle(events=True)
        [event] = [event for event in owner.events() if event["reason"] == "FailedDelete"]
        assert event["type"] == "Warning"
        assert MESSAGE in event["message"]
        assert not owner.told("SuccessfulDelete")
        assert list(owner.all_of(owner.members)()) == [name]
    eventually(lambda: not owner.all_of(owner.members)(), within_s=AGAIN_S, what="the delete is repeated")
    reacts(lambda: owner.condition("ReplicaFailure") is None, what="ReplicaFailure is removed")
