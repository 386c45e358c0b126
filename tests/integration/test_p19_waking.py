"""P19: only relevant changes trigger a reconciliation of the pool, and a pool at rest sends no requests."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.integration.controller_process import ControllerProcess, eventually, quiet_down, stays
from tests.integration.pool_namespace import BEHAVIOR, FINALIZER, PoolNamespace, finalizers_of, vm_template
from tests.integration.renewal import revision_of

pytestmark = pytest.mark.cluster

REST_S = 5.0
IRRELEVANT: dict[str, dict[str, Any]] = {
    "an annotation": {"metadata": {"annotations": {"note": "hello"}}},
    "a field of the status": {"status": {"guestOSInfo": {"name": "Fedora"}}},
    "a node": {"status": {"nodeName": "node-of-another-name"}},
}


def answered(pools: PoolNamespace, since: int) -> list[str]:
    """The names of the VMs that the controller patched after their deletion, once for each such patch."""
    records = sorted(pools.plane.audit_records(since), key=lambda each: each.request_received_timestamp)
    ours = [r for r in records if r.namespace == pools.namespace and r.resource == "virtualmachines" and r.code == 200]
    deleted: set[str] = set()
    found = []
    for record in ours:
        if record.verb == "delete":
            deleted.add(record.name)
        elif record.verb == "patch" and record.user_agent.startswith("vmherd/") and record.name in deleted:
            found.append(record.name)
    return found


def test_p19_a_vm_that_its_user_deletes_loses_its_finalizer_with_one_patch(pools: PoolNamespace) -> None:
    keeps_disks = {"proactive": {"statePreservation": "Offline"}}
    pools.make_pool(6, template=vm_template(runStrategy="Halted"), scaleInStrategy=keeps_disks)
    pools.wait_for_ordinals(*range(6), ready=False)
    pools.wait_until_updated(6)
    since = pools.plane.audit_position()
    for ordinal in range(6):
        pools.delete_vm(f"pool-{ordinal}")
    eventually(lambda: len(pools.vms_created(since)) == 6, what="all VMs are recreated")
    assert sorted(answered(pools, since)) == [f"pool-{ordinal}" for ordinal in range(6)]


def test_p19_the_readiness_and_the_revision_of_a_vmi_trigger_the_pool_of_its_vm(
    pools: PoolNamespace, pool_controller: ControllerProcess
) -> None:
    pools.make_pool(2)
    pools.wait_ready(2)
    before = quiet_down(pools, pool_controller)
    revision = revision_of(pools.vmis()["pool-0"])
    pools.change_vmi("pool-0", {"metadata": {"labels": {"kubevirt.io/vm-pool-revision-name": "none"}}})
    eventually(lambda: pool_controller.passes(pools.namespace) > before, what="a changed revision triggers a pass")
    eventually(
        lambda: {revision_of(vmi) for vmi in pools.vmis().values()} == {revision}, what="the revision is corrected"
    )
    pools.wait_ready(2)
    before = quiet_down(pools, pool_controller)
    pools.change_vmi("pool-1", {"metadata": {"annotations": {BEHAVIOR: "never-ready"}}})
    eventually(lambda: pool_controller.passes(pools.namespace) > before, what="readiness triggers a pass")
    eventually(lambda: pools.pool_status().get("readyReplicas") == 1)


def test_p19_an_irrelevant_change_triggers_no_pass(pools: PoolNamespace, pool_controller: ControllerProcess) -> None:
    pools.make_pool(2)
    pools.wait_ready(2)
    before = quiet_down(pools, pool_controller)
    for what, change in IRRELEVANT.items():
        pools.change_vmi("pool-0", change)
        stays(lambda: pool_controller.passes(pools.namespace) == before, for_s=0.6, what=f"no pass after {what}")
    pools.make_vm("stranger", template=vm_template(running=False))
    pools.change_vm("stranger", {"metadata": {"annotations": {"note": "hello"}}})
    stays(lambda: pool_controller.passes(pools.namespace) == before, for_s=0.6, what="no pass after a foreign change")


def test_p19_the_deletion_of_the_pool_triggers_a_pass_that_releases_its_vms(
    pools: PoolNamespace, pool_controller: ControllerProcess
) -> None:
    pools.make_pool(2, scaleInStrategy={"proactive": {"statePreservation": "Offline"}})
    pools.wait_ready(2)
    before = quiet_down(pools, pool_controller)
    pools.kubectl("delete", "vmpool", "pool", "--cascade=orphan", "--wait=false")
    eventually(lambda: not pools.pool_exists(), what="the pool is gone")
    eventually(lambda: pool_controller.passes(pools.namespace) > before, what="the log shows the pass")
    eventually(lambda: not any(FINALIZER in finalizers_of(vm) for vm in pools.vms().values()))


def test_p19_at_rest_there_are_no_requests(pools: PoolNamespace, pool_controller: ControllerProcess) -> None:
    pools.make_pool(10)
    pools.wait_ready(10)
    pools.make_pool(2, name="degraded", template=vm_template(vmi_annotations={BEHAVIOR: "never-ready"}))
    eventually(lambda: pools.pool_status("degraded").get("replicas") == 2)
    phases = ["Running"] * 12
    eventually(lambda: [vmi["status"].get("phase") for vmi in pools.vmis().values()] == phases, what="all VMIs run")
    passes = quiet_down(pools, pool_controller)
    time.sleep(1)
    at_rest = pools.plane.audit_position()
    time.sleep(REST_S)
    assert pools.requests(since=at_rest) == []
    assert pool_controller.passes(pools.namespace) == passes
