"""Tests of the simulated controller process and of its simulated faults."""

import pytest

from controller.pool.plan import plan
from tests.pool_builders import pool
from tests.pool_simulation import PoolSimulation


@pytest.mark.parametrize("writes", [0, 1, 4, 6, 8])
def test_a_process_that_is_killed_after_some_writes_has_done_only_these_writes(writes: int) -> None:
    simulation = PoolSimulation(pool(replicas=6))
    stages = plan(simulation.snapshot()).stages
    simulation.crash_while_carrying_out(stages, writes)
    assert len(simulation.vms) + len(simulation.revisions) == min(writes, 7)
    simulation.come_to_rest()
    assert len(simulation.vms) == 6


def test_a_process_that_is_killed_in_a_pass_writes_no_status() -> None:
    simulation = PoolSimulation(pool(replicas=2))
    simulation.crash_in_a_pass(2)
    assert (len(simulation.vms), simulation.pool.get("status")) == (1, None)
    simulation.run_pass()
    assert simulation.pool["status"]["replicas"] == 2
