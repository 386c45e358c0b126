"""The wall clock of the controller jumps while the clock of the API server is right (P15)."""

from datetime import datetime, timedelta

import pytest

from controller.runtime.actions import Delete
from tests.controller.pool.test_healing import BROKEN, SOON
from tests.pool_builders import pool, vm_spec
from tests.pool_simulation import PoolSimulation

DAY_S = 86_400.0
JUMPS = [-3650 * DAY_S, DAY_S]


class SkewedSimulation(PoolSimulation):
    """A simulation in which the clock of the controller differs from the clock of the server by `skew_s`."""

    skew_s = 0.0

    def skew(self, seconds: float) -> None:
        self.skew_s = seconds
        self.process._now = self.skewed_now
        self.restart()

    def skewed_now(self) -> datetime:
        return self.now + timedelta(seconds=self.skew_s)


@pytest.mark.no_cover  # hours of the same few lines
@pytest.mark.parametrize("jump_s", JUMPS)
def test_p15_healing_goes_on_after_a_jump_and_is_no_faster_than_its_longest_pause(jump_s: float) -> None:
    simulation = SkewedSimulation(pool(replicas=1, autohealing=SOON, spec=vm_spec(image=BROKEN)))

    def healings(seconds: int) -> int:
        simulation.actions.clear()
        for _ in range(seconds // 2):
            simulation.run_pass()
            simulation.live_on(2)
        return sum(isinstance(each, Delete) for each in simulation.actions)

    assert healings(120) >= 2
    simulation.skew(jump_s)
    after = healings(900)
    assert 1 <= after <= 9
    assert len(simulation.members()) <= 1
