"""P18: Events as `kubectl describe` shows them, and the number of requests for them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.controller_process import eventually
from tests.integration.denied import denied
from tests.integration.pool_namespace import PoolNamespace, vm_template
from tests.integration.quota import allow

pytestmark = pytest.mark.cluster

COMPONENT = "virtualmachinepool-controller"
VMS = "virtualmachines"


def described(pools: PoolNamespace) -> list[list[str]]:
    """The rows of Events in `kubectl describe`, split into words."""
    text = pools.kubectl("describe", "vmpool", "pool").stdout
    return [line.split() for line in text[text.index("Events:") :].splitlines()[3:]]


def row(pools: PoolNamespace, reason: str, message: str = "") -> list[str]:
    """The first row with this reason and this text in its message. If no row has them, the result is empty.

    kubectl runs only if the server has such an Event.
    """
    if not any(each["reason"] == reason and message in _text(each) for each in pools.events()):
        return []
    return next((row for row in described(pools) if row[1] == reason and message in " ".join(row)), [])


def _text(event: dict[str, Any]) -> str:
    return f"{event['source']['component']} {event['message']}"


def test_p18_kubectl_describe_shows_creates_updates_and_deletes(pools: PoolNamespace) -> None:
    pools.make_pool(1)
    pools.wait_ready(1)
    pools.change_template(vm_template(memory="128M"))
    pools.wait_ready(1)
    pools.scale(0)
    pools.wait_for_vms()
    wanted = {"SuccessfulCreate": "Created", "SuccessfulUpdate": "Updated", "SuccessfulDelete": "Deleted"}
    for reason, word in wanted.items():
        message = f"{COMPONENT} {word} VM {pools.namespace}/pool-0"
        words = eventually(lambda reason=reason, message=message: row(pools, reason, message), what=message)
        assert words[0] == "Normal"
    eventually(lambda: row(pools, "SuccessfulDelete", f"Deleted VMI {pools.namespace}/pool-0: "), what="the restart")
    events = pools.events()
    ours = [event for event in events if event["involvedObject"]["kind"] == "VirtualMachinePool"]
    assert {event["source"]["component"] for event in ours} == {COMPONENT}
    assert {event["involvedObject"]["uid"] for event in ours} == {pools.pool()["metadata"]["uid"]}


def assert_warns(words: list[str], *parts: str) -> None:
    """Check that the Event has the type Warning and that its message contains these parts."""
    assert words[0] == "Warning"
    assert [part for part in parts if part not in " ".join(words)] == []


def test_p18_a_refused_create_is_a_warning_with_the_servers_message(pools: PoolNamespace) -> None:
    allow(pools, 0, of=VMS)
    pools.make_pool(1)
    words = eventually(lambda: row(pools, "FailedCreate"), what="the Event")
    assert_warns(words, f"Error creating VM {pools.namespace}/pool-0: ", "exceeded quota: few")


def test_p18_a_refused_update_is_a_warning_with_the_servers_message(pools: PoolNamespace) -> None:
    pools.make_pool(1)
    pools.wait_ready(1)
    with denied(pools, "UPDATE", VMS, name="pool-0"):
        pools.change_template(vm_template(memory="128M"))
        words = eventually(lambda: row(pools, "FailedUpdate", "Error updating VM"), what="the Event")
        assert row(pools, "SuccessfulUpdate") == []
    assert_warns(words, f"Error updating VM {pools.namespace}/pool-0: ", "the house says no")


def test_p18_a_refused_delete_is_a_warning_with_the_servers_message(pools: PoolNamespace) -> None:
    pools.make_pool(1)
    pools.wait_ready(1)
    with denied(pools, "DELETE", VMS, name="pool-0"):
        pools.scale(0)
        words = eventually(lambda: row(pools, "FailedDelete"), what="the Event")
        assert row(pools, "SuccessfulDelete") == []
    assert_warns(words, f"Error deleting VM {pools.namespace}/pool-0: ", "the house says no")
