"""The life of a fleet: 500 VMs with two disks each are updated, scaled in and scaled out again. Their disks are kept.

The audit log of the API server shows the controller's writes, and a watch on the VMIs shows their availability.
"""

import os
from collections import Counter
from typing import Any

import pytest

from sandbox.audit import read_records
from tests.controlplane.documents import vm_template
from tests.controlplane.namespace import PoolNamespace
from tests.controlplane.waits import eventually
from tests.controlplane.watch import watched

pytestmark = [pytest.mark.cluster, pytest.mark.e2e, pytest.mark.timeout(900)]

FLEET = int(os.environ.get("VMHERD_TEST_FLEET", "500"))
FEWER = FLEET // 5
MOST_UNAVAILABLE = FLEET // 10
PATIENCE_S = 300.0
DISKS = ("root", "data")


def written(pools: PoolNamespace, verb: str, resource: str, code: int, *, since: int) -> Counter[str]:
    """The number of the controller's writes with this verb and status code, by object."""
    records = pools.requests(verb, since=since)
    return Counter(record.name for record in records if record.resource == resource and record.code == code)


def uids(objects: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: item["metadata"]["uid"] for name, item in objects.items()}


def names(replicas: int) -> set[str]:
    return {f"pool-{ordinal}" for ordinal in range(replicas)}


def test_a_fleet_comes_up_is_updated_scaled_in_and_out_with_its_disks_and_deleted(pools: PoolNamespace) -> None:
    plane = pools.plane
    strategy = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}, "statePreservation": "Offline"}}
    pools.make(FLEET, template=vm_template(disks=DISKS), maxUnavailable="10%", scaleInStrategy=strategy)
    pools.wait_ready(FLEET, within_s=PATIENCE_S)
    assert written(pools, "create", "virtualmachines", 201, since=pools.since) == Counter(names(FLEET))
    assert pools.requests("delete") == []
    disks = uids(pools.data_volumes())
    assert disks.keys() == {f"{disk}-{ordinal}" for disk in DISKS for ordinal in range(FLEET)}

    position = plane.audit_position()
    with watched(pools, pools.vmis) as seen:
        pools.change_template(vm_template(disks=DISKS, memory="128M"))
        pools.wait_ready(FLEET, within_s=PATIENCE_S)
    assert seen.least_ready()["pool"] >= FLEET - MOST_UNAVAILABLE
    assert written(pools, "delete", "virtualmachineinstances", 200, since=position) == Counter(names(FLEET))
    assert written(pools, "delete", "virtualmachines", 200, since=position) == Counter()
    assert uids(pools.data_volumes()) == disks

    position = plane.audit_position()
    pools.scale(FEWER)
    pools.wait_ready(FEWER, within_s=PATIENCE_S)
    gone = names(FLEET) - names(FEWER)
    assert written(pools, "delete", "virtualmachines", 200, since=position) == Counter(gone)
    assert uids(pools.data_volumes()) == disks
    kept = [claim for claim in pools.data_volumes().values() if not claim["metadata"].get("ownerReferences")]
    assert len(kept) == len(DISKS) * len(gone)

    position = plane.audit_position()
    pools.scale(FLEET)
    pools.wait_ready(FLEET, within_s=PATIENCE_S)
    assert written(pools, "create", "virtualmachines", 201, since=position) == Counter(gone)
    assert uids(pools.data_volumes()) == disks

    pools.kubectl("delete", "vmpool", "pool", "--wait=false")
    eventually(lambda: not pools.exists() and not pools.vms(), within_s=PATIENCE_S, what="all VMs are gone")
    assert uids(pools.data_volumes()) == disks, "state that was to be kept outlives the pool, too"
    deletes = [
        r for r in read_records(plane.audit_log, pools.since) if r.namespace == pools.namespace and r.verb == "delete"
    ]
    assert [record.name for record in deletes if record.resource in ("datavolumes", "persistentvolumeclaims")] == []
