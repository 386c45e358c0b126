"""R4a in virtual time: sets whose VMIs fail, on the fake API server with the real reconciler."""

import pytest

from controller.kubevirt.annotations import EARLY_FAILURES
from controller.kubevirt.resources import VMIS
from controller.runtime.result import After
from informers.meta import ObjectKey
from tests.builders import REPLICASETS
from tests.controller.replicaset.simulation import ReplicaSetSimulation, replicaset_document
from tests.fakes.rules import wire
from tests.fakes.virtual_time import run

HOUR_S = 3600.0
STEP_S = 1.0


class FailingLauncher:
    """Acts as virt-controller and the nodes: each VMI fails one second after its creation.

    With `strips`, a policy takes the number of failures off each VMI.
    """

    def __init__(self, replicas: int, *, strips: bool = False) -> None:
        self.strips = strips
        self.simulation = ReplicaSetSimulation(latency_s=0)
        self.simulation.server.put(REPLICASETS, replicaset_document(replicas=replicas))
        self._born: dict[str, float] = {}
        """The time in seconds of each creation, by UID."""

    @property
    def created(self) -> int:
        return len(self._born)

    async def live(self, seconds: float) -> None:
        end = self.simulation.seconds() + seconds
        while (now := self.simulation.seconds()) < end:
            before = len(self.simulation.server.events)
            self.simulation.process.catch_up()
            report = await self.simulation.reconcile()
            if self._act(now) or len(self.simulation.server.events) > before:
                self.simulation.advance(STEP_S)
                continue
            wait_s = report.result.seconds if isinstance(report.result, After) else end - now
            self.simulation.advance(max(min(wait_s, end - now), 0.001))

    def _act(self, now: float) -> bool:
        """Give each VMI its phase. Return True if a VMI will fail soon."""
        soon = False
        for name, document in self.simulation.server.documents(VMIS).items():
            born = self._born.setdefault(document["metadata"]["uid"], now)
            phase, times = "Failed" if now - born >= STEP_S else "Scheduling", document.get("status", {})
            soon = soon or phase == "Scheduling"
            if times.get("phase") != phase:
                entered = {"phase": phase, "phaseTransitionTimestamp": wire(self.simulation.now)}
                status = {"phase": phase, "phaseTransitionTimestamps": [entered]}
                notes = {"metadata": {"annotations": {EARLY_FAILURES: None}}} if self.strips else {}
                self.simulation.server.change(VMIS, ObjectKey("default", name), {"status": status, **notes})
        return soon

    def reported(self, reason: str) -> int:
        """The number of different Events with this reason. Notices with equal `once` give one Event."""
        return len({each.once for each in self.simulation.process.recorder.published if each.reason == reason})


@pytest.mark.no_cover  # hours of the same few lines
@pytest.mark.parametrize(("replicas", "strips"), [(1, False), (3, False), (20, False), (3, True)])
def test_r4a_a_template_that_always_fails_makes_few_vmis_in_an_hour(replicas, strips):
    """Each VMI is replaced once without a delay. Then one VMI is tried at a time, with delays from 10 s to 300 s."""
    launcher = FailingLauncher(replicas, strips=strips)
    run(launcher.live(HOUR_S))
    assert 2 * replicas + 14 <= launcher.created <= 2 * replicas + 18
    assert len(launcher.simulation.members) <= replicas
    assert launcher.reported("BackOff") == 1
    assert "ReplicaBackOff" in launcher.simulation.conditions


def test_r4a_a_restart_of_the_controller_forgets_nothing():
    launcher = FailingLauncher(3)
    for _ in range(60):
        run(launcher.live(60))
        launcher.simulation.restart()
    assert launcher.created <= 2 * 3 + 18
