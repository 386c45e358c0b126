"""R12: `kubectl describe` shows the controller's Events. The tests also count the requests for these Events."""

from __future__ import annotations

import pytest

from tests.integration.controller_process import ReplicaSetNamespace, eventually, stays
from tests.integration.quota import allow

pytestmark = pytest.mark.cluster

COMBINED = "(combined from similar events)"
COMPONENT = "virtualmachineinstancereplicaset-controller"


def event_requests(sets: ReplicaSetNamespace) -> int:
    """The number of the controller's requests for Events. The requests of the test do not count."""
    records = [record for record in sets.plane.audit_records(sets.since) if record.user_agent.startswith("vmherd/")]
    return sum(record.resource == "events" and record.namespace == sets.namespace for record in records)


def events_in_describe(sets: ReplicaSetNamespace) -> str:
    text = sets.kubectl("describe", "vmirs", "herd").stdout
    return text[text.index("Events:") :]


def test_r12_kubectl_describe_shows_creates_and_deletes(sets: ReplicaSetNamespace) -> None:
    sets.make_set(2)
    first, second = sorted(sets.wait_for(2))
    eventually(lambda: sets.reasons()["SuccessfulCreate"] == 2, what="the Events arrive")
    told = events_in_describe(sets)
    for name in (first, second):
        assert f"Created virtual machine: {name}" in told
    sets.change_set({"spec": {"replicas": 1}})
    kept = sets.wait_for(1)
    eventually(lambda: sets.reasons()["SuccessfulDelete"] == 1, what="the Event arrives")
    gone = ({first, second} - kept.keys()).pop()
    told = events_in_describe(sets)
    assert f"Deleted virtual machine: {gone}" in told
    assert COMPONENT in told
    row = next(line for line in told.splitlines() if gone in line and "Deleted" in line)
    assert row.split()[:2] == ["Normal", "SuccessfulDelete"]


def test_r12_a_refused_create_is_a_warning_with_the_servers_message(sets: ReplicaSetNamespace) -> None:
    allow(sets, 0)
    sets.make_set(1)
    eventually(lambda: sets.reasons()["FailedCreate"], what="the Event arrives")
    told = events_in_describe(sets)
    row = next(line for line in told.splitlines() if "FailedCreate" in line)
    assert row.split()[0] == "Warning"
    assert "exceeded quota: few" in row


def test_r4_r12_each_of_three_hundred_vmis_is_created_once_with_at_most_a_few_dozen_event_requests(
    sets: ReplicaSetNamespace,
) -> None:
    sets.make_set(300)
    sets.wait_for(300, within_s=60)
    assert sorted(record.code for record in sets.requests("create")) == [201] * 300
    eventually(lambda: sets.reasons()["SuccessfulCreate"] >= 10, what="the Events arrive")
    eventually(lambda: any(COMBINED in event["message"] for event in sets.events()), what="the combined Event arrives")
    stays(lambda: event_requests(sets) <= 36, what="a few dozen")
    assert event_requests(sets) >= 10
    assert COMBINED in events_in_describe(sets)
