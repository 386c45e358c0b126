"""P13: a pool needs restarts, but the cluster has no restart subresource. The tests check the status, the Event and the
retries.
"""

from controller.kubevirt.resources import VM_REQUESTS, VMS
from controller.pool.status import outcome_notices
from controller.runtime.actions import Done, Rejected, Unserved
from informers.errors import Forbidden, NotFound
from tests.fakes.rules import not_served
from tests.pool_builders import pool, vm_spec
from tests.pool_outcomes import REQUESTED_RESTART, failure_of
from tests.pool_simulation import PoolSimulation

ABSENT = NotFound("the server could not find the requested resource", code=404)
WHY = "virtualmachines.subresources.kubevirt.io/restart is not served: the server could not find the requested resource"


def manual_pool() -> PoolSimulation:
    """Three running VMs with run strategy Manual, and a new template. The cluster does not serve restarts."""
    simulation = PoolSimulation(pool(spec=vm_spec(image="v1", run_strategy="Manual"), maxUnavailable=1))
    simulation.come_to_rest()
    for name in simulation.vms:
        simulation.server.change(VMS, simulation.key(name), {"status": {"stateChangeRequests": [{"action": "Start"}]}})
    simulation.come_to_rest()
    simulation.change_template(vm_spec(image="v2", run_strategy="Manual"))
    simulation.server.on_update = not_served
    return simulation


def test_p18_a_restart_has_an_event_with_its_reason():
    [notice] = outcome_notices([Done(REQUESTED_RESTART)])
    text = "Restarted VM default/vm-pool-cirros-0: its template is older than revision web-2"
    assert (notice.reason, notice.message, notice.warning) == ("SuccessfulUpdate", text, False)


def test_p18_a_rejected_restart_is_a_warning():
    [notice] = outcome_notices([Rejected(REQUESTED_RESTART, Forbidden("not you", code=403))])
    assert (notice.reason, notice.warning) == ("FailedUpdate", True)
    assert notice.message == "Error restarting VM default/vm-pool-cirros-0: not you"


def test_p17_a_restart_that_is_not_served_is_a_failure_to_update():
    failure = failure_of([Unserved(REQUESTED_RESTART, ABSENT)])
    assert failure is not None
    assert (failure.reason, failure.message) == ("FailedUpdate", f"error during VMI update: {WHY}")


def test_p13_a_pool_without_restarts_is_degraded_and_reports_it_once_and_retries_rarely():
    simulation = manual_pool()
    start = simulation.now
    simulation.run_passes(60)
    status = simulation.pool["status"]
    assert status["printableStatus"] == "Degraded"
    assert [each["message"] for each in status["conditions"] if each["type"] == "ReplicaFailure"] == [
        f"error during VMI update: {WHY}"
    ]
    told = [each for each in simulation.process.recorder.published if "waits for a restart" in each.message]
    assert len({each.once for each in told}) == 1
    assert told[0].once
    asked = [each for each in simulation.server.requests if each.resource is VM_REQUESTS]
    assert 1 < len(asked) <= (simulation.now - start).total_seconds() / 20 + 1
    assert status["updatedReplicas"] == 0
    assert {each["metadata"]["labels"]["kubevirt.io/vm-pool-revision-name"] for each in simulation.vmis.values()} == {
        "web-1"
    }
