"""The wall clock of the controller jumps. The API server's clock is right, and the event loop's clock never jumps."""

import pytest

from controller.kubevirt.resources import VMIS
from controller.replicas.settings import PROGRESS_DEADLINE_S
from controller.replicaset.back_off import LONGEST_DELAY
from controller.runtime.result import After, Retry
from tests.builders import REPLICASETS
from tests.controller.replicaset.simulation import ReplicaSetSimulation, replicaset_document
from tests.fakes.virtual_time import run

DAY_S = 86_400.0
JUMPS = [-3650 * DAY_S, -DAY_S, -60.0, 60.0, DAY_S, 3650 * DAY_S]


def simulation(*, replicas: int = 3) -> ReplicaSetSimulation:
    made = ReplicaSetSimulation(instant=True, latency_s=0)
    made.server.put(REPLICASETS, replicaset_document(replicas=replicas))
    made.run_pass()
    made.live_on()
    made.run_pass()
    return made


def fail_one(made: ReplicaSetSimulation) -> None:
    _, document = next(iter(made.server.documents(VMIS, made.key.namespace).items()))
    times = [{"phase": "Running", "phaseTransitionTimestamp": made.now.isoformat()}]
    status = {**document.get("status", {}), "phase": "Failed", "phaseTransitionTimestamps": times}
    made.server.replace(VMIS, {**document, "status": status})


@pytest.mark.parametrize("jump_s", JUMPS)
def test_r4a_a_jump_of_the_clock_keeps_the_number_of_vmis_and_the_longest_delay(jump_s: float) -> None:
    made = simulation()
    for _ in range(3):
        fail_one(made)
        made.run_pass()
        made.advance(1)
    made.advance(jump_s)
    waits, delays = [], []
    for _ in range(40):
        assert len(made.active) <= 3
        report = run(made.reconcile())
        made.process.catch_up()
        if isinstance(report.result, After):
            waits.append(report.result.seconds)
            delays += waits[-1:] if len(made.active) < 3 else []
        assert not isinstance(report.result, Retry)
        made.advance(waits[-1] if waits else 1.0)
    assert len(made.active) == 3, made.conditions
    assert max(delays, default=0.0) <= LONGEST_DELAY.total_seconds()
    assert max(waits, default=0.0) <= PROGRESS_DEADLINE_S
