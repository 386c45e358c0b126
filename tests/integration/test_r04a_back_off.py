"""R4a: VMIs that fail soon after they start are replaced with a growing delay."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controller.kubevirt.annotations import HISTORY
from tests.controlplane.namespace import SetNamespace
from tests.controlplane.waits import eventually, reacts

pytestmark = pytest.mark.cluster

FAILURES = "vmherd.dev/early-failures"
OBSERVED = {"kubevirt.io/latest-observed-api-version": "v1", "kubevirt.io/storage-observed-api-version": "v1"}


def fail(sets: SetNamespace, name: str, *, ahead_s: float = 0) -> None:
    """Let a VMI fail. The clock of its node is ahead by `ahead_s` seconds, and the delay begins at its time."""
    moment = (datetime.now(UTC) + timedelta(seconds=ahead_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
    times = [{"phase": "Failed", "phaseTransitionTimestamp": moment}]
    sets.vmis.change(name, {"status": {"phase": "Failed", "phaseTransitionTimestamps": times}})


def record_of(vmi: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = json.loads((vmi["metadata"].get("annotations") or {}).get(FAILURES, "{}"))
    return made


def uid_of(vmi: dict[str, Any]) -> str:
    uid: str = vmi["metadata"]["uid"]
    return uid


def test_r4a_failing_vmis_are_replaced_with_a_delay_and_the_set_reports_it(sets: SetNamespace) -> None:
    sets.make(1)
    ((first, made),) = sets.wait_for(1).items()
    sets.change({"metadata": {"annotations": OBSERVED}})
    fail(sets, first)
    second = reacts(
        lambda: next((name for name, vmi in sets.alive().items() if uid_of(vmi) != uid_of(made)), None),
        what="the first failure is replaced",
    )
    assert not sets.reasons()["BackOff"], "it is replaced at once"
    replacement = sets.alive()[second]
    assert record_of(replacement)["failures"] == 1
    assert record_of(replacement)["since"] == made["metadata"]["creationTimestamp"]

    # So a slow test also sees the state during the delay.
    fail(sets, second, ahead_s=10)
    condition = reacts(lambda: sets.condition("ReplicaBackOff"))
    assert (condition["status"], condition["reason"]) == ("True", "CrashLoopBackOff")
    assert second in condition["message"]
    reacts(lambda: sets.reasons()["BackOff"] == 1)
    sets.settle(events=True)
    assert sets.created().total() == 2, "no third VMI"
    assert uid_of(sets.vmis()[second]) == uid_of(replacement)

    third = eventually(
        lambda: next((vmi for vmi in sets.alive().values() if uid_of(vmi) != uid_of(replacement)), None),
        what="the third VMI after the delay",
    )
    assert record_of(third)["failures"] == 2
    assert record_of(third)["since"] == made["metadata"]["creationTimestamp"]
    sets.play(third["metadata"]["name"])
    reacts(lambda: sets.condition("ReplicaBackOff") is None, what="the condition goes")
    reacts(lambda: len(sets.vmis()) == 1, what="the failed VMI is deleted")
    assert sets.reasons()["BackOff"] == 1
    notes = sets.read()["metadata"]["annotations"]
    assert {name: value for name, value in notes.items() if name != HISTORY} == OBSERVED
