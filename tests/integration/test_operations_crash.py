"""G1 and G5: an outage does not change the final state."""

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.admin import Rejected
from sandbox.controlplane import APISERVER, ControlPlane
from tests.controlplane.namespace import SetNamespace, controller_for
from tests.controlplane.programs import ControllerProcess
from tests.controlplane.waits import WORK_S, eventually

pytestmark = pytest.mark.cluster

WANTED = 300
UNDER_WAY = 50
MEASURED_S = 4.0
BACK_AT_WORK_S = 30.0
ASKED_PER_S = 20
SLOWLY = ("--burst", "1")
"""Flags for a slow controller. The test stops the server before the controller has finished its work."""


def test_an_outage_costs_a_scale_down_only_a_few_seconds_more(idle_namespace: SetNamespace, tmp_path: Path) -> None:
    with controller_for(idle_namespace, tmp_path, "--no-leader-elect", *SLOWLY) as program:
        idle_namespace.make(WANTED)
        before = idle_namespace.wait_for(WANTED, within_s=60)
        idle_namespace.scale(20)
        eventually(lambda: len(idle_namespace.alive()) <= WANTED - 20, what="the scale-down is under way")
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


@contextmanager
def unplugged(plane: ControlPlane) -> Iterator[None]:
    """Kill the API server. After the block, start the API server if it does not run."""
    os.kill(plane.pids()[APISERVER], signal.SIGKILL)
    plane.stop_component(APISERVER)
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
