"""P18: Events as people read them in `kubectl describe`, and few of them."""

from __future__ import annotations

import pytest

from tests.integration.denied import denied
from tests.integration.herd import eventually, stays
from tests.integration.quota import allow
from tests.integration.ranch import Ranch, vm_template

pytestmark = pytest.mark.cluster

COMPONENT = "virtualmachinepool-controller"
VMS = "virtualmachines"


def described(ranch: Ranch) -> list[list[str]]:
    """The rows of `kubectl describe`, in words."""
    text = ranch.kubectl("describe", "vmpool", "pool").stdout
    return [line.split() for line in text[text.index("Events:") :].splitlines()[3:]]


def row(ranch: Ranch, reason: str, message: str = "") -> list[str]:
    """The first row with this reason, in whose message this occurs; empty for none."""
    return next((row for row in described(ranch) if row[1] == reason and message in " ".join(row)), [])


def event_requests(ranch: Ranch) -> int:
    records = ranch.plane.audit_records(ranch.since)
    ours = [record for record in records if record.user_agent.startswith("vmherd/")]
    return sum(record.resource == "events" and record.namespace == ranch.namespace for record in ours)


def test_p18_describe_tells_what_was_created_updated_and_deleted(ranch: Ranch) -> None:
    ranch.make_pool(1)
    ranch.wait_ready(1)
    ranch.change_template(vm_template(memory="128M"))
    ranch.wait_ready(1)
    ranch.scale(0)
    ranch.wait_for_vms()
    wanted = {"SuccessfulCreate": "Created", "SuccessfulUpdate": "Updated", "SuccessfulDelete": "Deleted"}
    for reason, word in wanted.items():
        message = f"{COMPONENT} {word} VM {ranch.namespace}/pool-0"
        words = eventually(lambda reason=reason, message=message: row(ranch, reason, message), what=message)
        assert words[0] == "Normal"
    assert "SuccessfulDelete" in row(ranch, "SuccessfulDelete", f"Deleted VMI {ranch.namespace}/pool-0: ")
    events = ranch.events()
    ours = [event for event in events if event["involvedObject"]["kind"] == "VirtualMachinePool"]
    assert {event["source"]["component"] for event in ours} == {COMPONENT}
    assert {event["involvedObject"]["uid"] for event in ours} == {ranch.pool()["metadata"]["uid"]}


def test_p18_a_refused_create_is_a_warning_with_the_servers_message(ranch: Ranch) -> None:
    allow(ranch, 0, of=VMS)
    ranch.make_pool(1)
    words = eventually(lambda: row(ranch, "FailedCreate"), what="the Event")
    assert words[0] == "Warning"
    assert f"Error creating VM {ranch.namespace}/pool-0: " in " ".join(words)
    assert "exceeded quota: few" in " ".join(words)


def test_p18_a_refused_update_is_a_warning_with_the_servers_message(ranch: Ranch) -> None:
    ranch.make_pool(1)
    ranch.wait_ready(1)
    with denied(ranch, "UPDATE", VMS, probe=("label", "vm", "pool-0", "probe=yes")):
        ranch.change_template(vm_template(memory="128M"))
        words = eventually(lambda: row(ranch, "FailedUpdate"), what="the Event")
        assert row(ranch, "SuccessfulUpdate") == []
    assert words[0] == "Warning"
    assert f"Error updating VM {ranch.namespace}/pool-0: " in " ".join(words)
    assert "the house says no" in " ".join(words)


def test_p18_a_refused_delete_is_a_warning_with_the_servers_message(ranch: Ranch) -> None:
    ranch.make_pool(1)
    ranch.wait_ready(1)
    with denied(ranch, "DELETE", VMS, probe=("delete", "vm", "pool-0")):
        ranch.scale(0)
        words = eventually(lambda: row(ranch, "FailedDelete"), what="the Event")
        assert row(ranch, "SuccessfulDelete") == []
    assert words[0] == "Warning"
    assert f"Error deleting VM {ranch.namespace}/pool-0: " in " ".join(words)
    assert "the house says no" in " ".join(words)


def test_p18_two_hundred_creates_are_at_most_a_few_dozen_event_requests(ranch: Ranch) -> None:
    ranch.make_pool(200, template=vm_template(runStrategy="Halted"))
    eventually(lambda: ranch.pool_status().get("replicas") == 200, within_s=60, what="all are there")
    eventually(lambda: ranch.told("SuccessfulCreate")["pool"] >= 10, what="the Events arrive")
    stays(lambda: event_requests(ranch) <= 36, what="a few dozen")
    assert event_requests(ranch) >= 10
    assert any("(combined" in words for words in described(ranch))
