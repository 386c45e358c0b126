"""P8, R9: a leader that dies during a scale-in, and a new leader whose cache of VMs lags."""

import pytest

from controller.kubevirt.resources import VMS
from tests.fakes.virtual_time import run
from tests.pool_builders import pool
from tests.pool_simulation import PoolSimulation

UNREADY = {"printableStatus": "Starting", "conditions": [{"type": "Ready", "status": "False"}]}


@pytest.mark.parametrize("unready", ["web-0", "web-1", "web-2"])
@pytest.mark.parametrize("strategy", [None, {"proactive": {"statePreservation": "Offline"}}])
def test_p8_a_new_leader_with_a_lagging_cache_chooses_no_second_victim(unready, strategy):
    """The first leader deletes a VM before it sees that another VM is not ready. The second leader sees that, but not
    the deletion, so it would choose the unready VM.
    """
    simulation = PoolSimulation(pool(replicas=3, **({} if strategy is None else {"scaleInStrategy": strategy})))
    simulation.come_to_rest()
    simulation.server.on_write = lambda request, before: None  # the cache of VMs receives no event by itself
    pools, vms, vmis, _ = simulation.caches
    simulation.change(replicas=2)
    pools.catch_up()
    simulation.server.change(VMS, simulation.key(unready), {"status": UNREADY})
    run(simulation.process.reconcile(simulation.key("web")))
    assert len(simulation.running()) == 2

    simulation.restart()
    vms.catch_up(events=1)
    for _ in range(3):
        pools.catch_up()
        run(simulation.process.reconcile(simulation.key("web")))
        assert len(simulation.running()) == 2
    vms.catch_up()
    vmis.catch_up()
    simulation.come_to_rest()
    assert len(simulation.running()) == 2


def test_p8_a_new_leader_compares_its_cache_once_before_its_first_delete():
    simulation = PoolSimulation(pool(replicas=6))
    simulation.come_to_rest()
    simulation.restart()
    asked = len(simulation.server.requests)
    for replicas in (5, 3, 0):
        simulation.change(replicas=replicas)
        simulation.come_to_rest()
    assert [each.resource for each in simulation.server.requests[asked:] if each.verb == "list"] == [VMS]
    assert simulation.members() == []
