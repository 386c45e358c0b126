"""R4a in virtual time: sets whose VMIs fail, on the fake API server with the real reconciler."""

import pytest

from tests.builders import REPLICASETS
from tests.controller.replicaset.launcher import Fate, Launcher, fails
from tests.controller.replicaset.simulation import ReplicaSetSimulation, replicaset_document
from tests.fakes.virtual_time import run

HOUR_S = 3600.0


def set_of(replicas: int, fate: Fate, *, finalizers: bool = False, **annotations: str) -> Launcher:
    simulation = ReplicaSetSimulation(latency_s=0, finalizers=finalizers)
    document = replicaset_document(replicas=replicas)
    simulation.server.put(REPLICASETS, {**document, "metadata": {**document["metadata"], "annotations": annotations}})
    return Launcher(simulation, fate)


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
