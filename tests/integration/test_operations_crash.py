"""G1 and G5: a crash or an outage does not change the final state."""

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox.admin import Rejected
from sandbox.controlplane import APISERVER, ControlPlane
from tests.controlplane.namespace import SetNamespace, controller_for
from tests.controlplane.programs import ControllerProcess, controller_process
from tests.controlplane.waits import WORK_S, eventually
from tests.integration.idle_plane import SHORT_LEASE

pytestmark = pytest.mark.cluster

WANTED = 300
UNDER_WAY = 50
MEASURED_S = 4.0
BACK_AT_WORK_S = 30.0
ASKED_PER_S = 20
SLOWLY = ("--kube-api-qps", "50", "--kube-api-burst", "20")
"""Flags for a slow controller. The test stops the server before the controller has finished its work.

These limits are higher than the rate of retries in an outage, so they do not slow down the retries.
"""
VERY_SLOWLY = ("--kube-api-qps", "20", "--kube-api-burst", "20")


def test_a_controller_killed_in_the_middle_of_a_scale_up_creates_nothing_twice(
    idle_namespace: SetNamespace, tmp_path: Path
) -> None:
    with controller_process(idle_namespace.plane, tmp_path, *SHORT_LEASE, *VERY_SLOWLY) as first:
        idle_namespace.make(WANTED)
        eventually(lambda: len(idle_namespace.vmis()) >= 40, within_s=WORK_S, what="the scale-up is under way")
        first.kill()
    assert len(idle_namespace.vmis()) < WANTED
    with controller_for(idle_namespace, tmp_path, *SHORT_LEASE):
        alive = idle_namespace.wait_for(WANTED, within_s=60)
        idle_namespace.settle()
        assert idle_namespace.alive().keys() == alive.keys()
    assert_each_once(idle_namespace.created(), of=set(alive))
    assert not idle_namespace.deleted()


def test_an_outage_costs_a_scale_down_only_a_few_seconds_more(idle_namespace: SetNamespace, tmp_path: Path) -> None:
    with controller_for(idle_namespace, tmp_path, "--no-leader-elect", *SLOWLY) as program:
        before = scaled_up(idle_namespace)
        scale_down_begins(idle_namespace, to=20)
        with unplugged(idle_namespace.plane):
            eventually(lambda: asked_per_s(program, 1.0) <= ASKED_PER_S, within_s=WORK_S, what="longer delays")
            assert asked_per_s(program, MEASURED_S) <= ASKED_PER_S
            assert program.health("healthz")[0] == 200
            assert len(idle_namespace.deleted()) + UNDER_WAY < WANTED - 20
        eventually(lambda: answers(idle_namespace), within_s=WORK_S, what="the server serves VMIs again")
        kept = idle_namespace.wait_for(20, within_s=BACK_AT_WORK_S)
        idle_namespace.settle()
        assert idle_namespace.vmis().keys() == kept.keys()
        assert_each_once(idle_namespace.deleted(), of=before.keys() - kept.keys())
        assert_each_once(idle_namespace.created(), of=set(before))
        assert any("refused" in line["why"] for line in program.lines(msg="waiting"))
        eventually(lambda: len(program.lines(msg="following again")) >= 2, within_s=WORK_S, what="both watches")
        assert not program.lines(level="error")


def test_a_leader_without_an_api_server_exits_and_its_successor_waits_and_continues(
    idle_namespace: SetNamespace, tmp_path: Path
) -> None:
    with controller_process(idle_namespace.plane, tmp_path, *SHORT_LEASE, *SLOWLY) as leader:
        before = scaled_up(idle_namespace)
        scale_down_begins(idle_namespace, to=20)
        with unplugged(idle_namespace.plane):
            assert leader.process.wait(30) == 1
            assert "lease" in leader.log.read_text().splitlines()[-1]
            with controller_process(leader.pod, tmp_path, *SHORT_LEASE, wait=False) as next_one:
                eventually(
                    lambda: next_one.lines(msg="waiting for the API server"),
                    within_s=WORK_S,
                    what="it logs that it waits",
                )
                idle_namespace.plane.start_apiserver()
                eventually(lambda: next_one.working, within_s=WORK_S, what="it works")
                kept = idle_namespace.wait_for(20, within_s=BACK_AT_WORK_S)
                next_one.settle(idle_namespace.namespace, idle_namespace.admin)
                assert idle_namespace.vmis().keys() == kept.keys()
    assert_each_once(idle_namespace.deleted(), of=before.keys() - kept.keys())
    assert_each_once(idle_namespace.created(), of=set(before))


def scaled_up(sets: SetNamespace) -> dict[str, dict[str, Any]]:
    sets.make(WANTED)
    return sets.wait_for(WANTED, within_s=60)


def scale_down_begins(sets: SetNamespace, *, to: int) -> None:
    sets.change({"spec": {"replicas": to}})
    eventually(lambda: len(sets.alive()) <= WANTED - 20, within_s=WORK_S, what="the scale-down is under way")


@contextmanager
def unplugged(plane: ControlPlane) -> Iterator[None]:
    """Kill the API server. After the block, start the API server if it does not run."""
    os.kill(plane.pids()[APISERVER], signal.SIGKILL)
    plane.stop_apiserver()
    try:
        yield
    finally:
        if APISERVER not in plane.pids():
            plane.start_apiserver()


def unanswered(program: ControllerProcess) -> int:
    counts = re.findall(r'^rest_client_requests_total\{code="<error>".*\} (\S+)$', program.metrics(), re.MULTILINE)
    return round(sum(map(float, counts)))


def asked_per_s(program: ControllerProcess, seconds: float) -> float:
    """The number of requests without an answer per second, in the next `seconds` seconds or a little longer."""
    before, began = unanswered(program), time.monotonic()
    time.sleep(seconds)
    return (unanswered(program) - before) / (time.monotonic() - began)


def assert_each_once(written: Counter[str], *, of: set[str]) -> None:
    """Check that each written name occurs only once, and is one of the names in the argument `of`.

    A few of these names may be missing. If a crash or an outage interrupts a request, the audit log may contain no
    success for it.
    """
    assert set(written.values()) == {1}
    assert written.keys() <= of
    assert len(of) - len(written) <= UNDER_WAY


def answers(sets: SetNamespace) -> bool:
    """True if the server serves VMIs. A ready server may still be initializing its storage."""
    try:
        sets.vmis()
    except Rejected as refused:
        if refused.status == 429:
            return False
        raise
    return True
