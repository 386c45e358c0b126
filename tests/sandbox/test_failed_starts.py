"""VMs whose starts fail, or whose guests die later: the number of failures, and the delay of the next start."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.settings import BEHAVIOR, READY_AFTER, TIME_SCALE, SimulationSettings
from sandbox.vm_status import backoff_s
from sandbox.vmis import VMIS
from sandbox.vms import VMS
from tests.sandbox.machines import Machines, vm_document


def asking(behavior: str, **annotations: str) -> Machines:
    return Machines(vm_document(annotations={BEHAVIOR: behavior, READY_AFTER: "200ms", **annotations}))


def test_failed_starts_are_counted_and_wait_longer_and_longer() -> None:
    machines = asking("fail")
    waits: list[float] = []
    for _ in range(3000):
        machines.live(0.1)
        failure = machines.status().get("startFailure")
        if failure is not None and failure["consecutiveFailCount"] > len(waits):
            waits.append(round((time_of_retry(machines) - machines.now).total_seconds(), 1))
            assert failure["consecutiveFailCount"] == len(waits)
            assert machines.word == "CrashLoopBackOff"
            assert failure["lastFailedVMIUID"].startswith("uid-")
    assert all(10 * count**2 - 0.2 <= wait <= 15 * count**2 for count, wait in enumerate(waits, start=1)), waits
    assert len(waits) >= 3


@given(st.integers(1, 1000), st.text())
def test_a_backoff_is_ten_seconds_times_the_square_and_up_to_half_more_and_at_most_300_seconds(
    failures: int, uid: str
) -> None:
    least = 10 * failures**2
    assert min(least, 300) <= backoff_s(failures, uid) <= min(least * 1.5, 300)


def test_the_backoffs_of_vms_that_fail_together_differ() -> None:
    assert len({backoff_s(3, f"uid-{number}") for number in range(100)}) > 20


def test_a_time_scale_shortens_the_backoff_also_as_the_default_of_the_simulator() -> None:
    own = asking("fail", **{TIME_SCALE: "0.01"}).live(1)
    default = Machines(
        vm_document(annotations={BEHAVIOR: "fail", READY_AFTER: "200ms"}), defaults=SimulationSettings(time_scale=0.01)
    ).live(1)
    for machines in (own, default):
        assert machines.status()["startFailure"]["consecutiveFailCount"] >= 2
        assert time_of_retry(machines) - machines.now < timedelta(seconds=1.5)


@pytest.mark.parametrize("behavior", ["crash-loop", "finish"])
def test_a_guest_that_dies_after_running_is_started_again_at_once_and_is_no_failed_start(behavior: str) -> None:
    machines, words = asking(behavior), set()
    for _ in range(300):
        machines.live(0.1)
        words.add(machines.word)
        assert "startFailure" not in machines.status()
    assert "CrashLoopBackOff" not in words
    assert len(machines.done("create", VMIS)) > 20


def test_the_first_start_that_succeeds_ends_the_row_of_failures() -> None:
    machines = asking("fail", **{TIME_SCALE: "0.01"}).live(1)
    assert machines.status()["startFailure"]["consecutiveFailCount"] >= 2
    machines.patch(VMS, "vm", {"spec": {"template": {"metadata": {"annotations": {BEHAVIOR: None}}}}})
    machines.live(30)
    assert "startFailure" not in machines.status()
    assert machines.word == "Running"


def time_of_retry(machines: Machines) -> datetime:
    return datetime.fromisoformat(machines.status()["startFailure"]["retryAfterTimestamp"])
