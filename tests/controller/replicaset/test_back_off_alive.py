"""R4a in virtual time: sets whose VMIs fail, on the fake API server with the real reconciler."""

import pytest

from controller.kubevirt.resources import VMIS
from controller.kubevirt.vmis import is_ready
from controller.replicas.settings import PROGRESS_DEADLINE_S
from controller.replicaset.back_off import LONGEST_DELAY
from controller.runtime.result import After, Retry
from tests.builders import REPLICASETS
from tests.controller.replicaset.launcher import Fate, Launcher, change_template, comes_up, fails
from tests.controller.replicaset.simulation import KEY, ReplicaSetSimulation, replicaset_document
from tests.fakes.virtual_time import run

HOUR_S = 3600.0


def set_of(replicas: int, fate: Fate, *, finalizers: bool = False, **annotations: str) -> Launcher:
    simulation = ReplicaSetSimulation(latency_s=0, finalizers=finalizers)
    document = replicaset_document(replicas=replicas)
    simulation.server.put(REPLICASETS, {**document, "metadata": {**document["metadata"], "annotations": annotations}})
    return Launcher(simulation, fate)


def ready(launcher: Launcher) -> int:
    return sum(map(is_ready, launcher.simulation.active))


def reported(launcher: Launcher, reason: str) -> int:
    """The number of different Events with this reason. Notices with equal `once` give one Event."""
    return len({each.once for each in launcher.simulation.process.recorder.published if each.reason == reason})


@pytest.mark.no_cover  # hours of the same few lines
@pytest.mark.parametrize("replicas", [1, 3, 20])
def test_r4a_a_template_that_always_fails_makes_few_vmis_in_an_hour(replicas):
    """Each VMI is replaced once without a delay. Then one VMI is tried at a time, with delays from 10 s to 300 s."""
    launcher = set_of(replicas, fails)
    run(launcher.live(HOUR_S))
    assert 2 * replicas + 14 <= len(launcher.created) <= 2 * replicas + 18
    assert len(launcher.simulation.members) <= replicas
    assert reported(launcher, "BackOff") == 1
    assert "ReplicaBackOff" in launcher.simulation.conditions


def test_r4a_a_restart_of_the_controller_forgets_nothing():
    launcher = set_of(3, fails)
    for _ in range(60):
        run(launcher.live(60))
        launcher.simulation.restart()
    assert len(launcher.created) <= 2 * 3 + 18


def test_r4a_a_larger_wanted_number_of_a_failing_set_waits_as_well():
    launcher = set_of(2, fails)
    run(launcher.live(1000))
    created = len(launcher.created)
    launcher.simulation.server.change(REPLICASETS, KEY, {"spec": {"replicas": 50}})
    run(launcher.live(600))
    assert len(launcher.created) - created <= 4
    launcher.fate = comes_up
    run(launcher.live(310))
    assert ready(launcher) == 50


def test_r4a_a_rollout_to_a_failing_template_stops_and_is_reported_although_each_vmi_is_young():
    launcher = set_of(4, comes_up, **{"vmherd.dev/rolling-update": "maxUnavailable=1"})
    run(launcher.live(60))

    def fate(document, age_s):
        if "note" not in document["metadata"].get("annotations", {}):
            return "Ready"
        return "Scheduling" if age_s < 4 else "Ready" if age_s < 6 else "Failed"

    launcher.fate = fate
    change_template(launcher.simulation, note="crashes")
    run(launcher.live(500))
    assert "RolloutStalled" not in launcher.simulation.reasons
    run(launcher.live(400))
    assert reported(launcher, "RolloutStalled") == 1
    run(launcher.live(HOUR_S))
    assert ready(launcher) >= 2
    launcher.fate = comes_up
    run(launcher.live(5 * HOUR_S))
    assert launcher.simulation.owner.status.updated_replicas == 4
    assert ready(launcher) == 4


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
