"""A whole fleet through its life: 500 VMs with two disks each, updated, scaled in with their state kept, and out again.

What the controller did is read from the API server's audit log, what users had from a watch on the VMIs.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest

from tests.integration.availability import watched
from tests.integration.herd import eventually
from tests.integration.ranch import Ranch, vm_template

pytestmark = [pytest.mark.cluster, pytest.mark.e2e, pytest.mark.timeout(900)]

FLEET = int(os.environ.get("VMHERD_TEST_FLEET", "500"))
FEWER = FLEET // 5
MOST_UNAVAILABLE = FLEET // 10
PATIENCE_S = 300.0
DISKS = ("root", "data")


def written(ranch: Ranch, verb: str, resource: str, code: int, *, since: int) -> Counter[str]:
    """How often the controller did this to each object, successfully."""
    records = ranch.requests(verb, since=since)
    return Counter(record.name for record in records if record.resource == resource and record.code == code)


def uids(objects: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: item["metadata"]["uid"] for name, item in objects.items()}


def names(replicas: int) -> set[str]:
    return {f"pool-{ordinal}" for ordinal in range(replicas)}


def test_a_fleet_comes_up_is_updated_scaled_in_and_out_with_its_disks_and_deleted(ranch: Ranch) -> None:
    plane = ranch.plane
    strategy = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}, "statePreservation": "Offline"}}
    ranch.make_pool(FLEET, template=vm_template(disks=DISKS), maxUnavailable="10%", scaleInStrategy=strategy)
    ranch.wait_ready(FLEET, within_s=PATIENCE_S)
    assert written(ranch, "create", "virtualmachines", 201, since=ranch.since) == Counter(names(FLEET))
    assert ranch.requests("delete") == []
    disks = uids(ranch.data_volumes())
    assert disks.keys() == {f"{disk}-{ordinal}" for disk in DISKS for ordinal in range(FLEET)}

    position = plane.audit_position()
    with watched(ranch) as availability:
        ranch.change_template(vm_template(disks=DISKS, memory="128M"))
        ranch.wait_ready(FLEET, within_s=PATIENCE_S)
    assert availability.least["pool"] >= FLEET - MOST_UNAVAILABLE
    assert written(ranch, "delete", "virtualmachineinstances", 200, since=position) == Counter(names(FLEET))
    assert written(ranch, "delete", "virtualmachines", 200, since=position) == Counter()
    assert uids(ranch.data_volumes()) == disks

    position = plane.audit_position()
    ranch.scale(FEWER)
    ranch.wait_ready(FEWER, within_s=PATIENCE_S)
    gone = names(FLEET) - names(FEWER)
    assert written(ranch, "delete", "virtualmachines", 200, since=position) == Counter(gone)
    assert uids(ranch.data_volumes()) == disks
    kept = [claim for claim in ranch.data_volumes().values() if not claim["metadata"].get("ownerReferences")]
    assert len(kept) == len(DISKS) * len(gone)

    position = plane.audit_position()
    ranch.scale(FLEET)
    ranch.wait_ready(FLEET, within_s=PATIENCE_S)
    assert written(ranch, "create", "virtualmachines", 201, since=position) == Counter(gone)
    assert uids(ranch.data_volumes()) == disks

    ranch.kubectl("delete", "vmpool", "pool", "--timeout=120s")
    eventually(lambda: not ranch.vms(), within_s=PATIENCE_S, what="all VMs are gone")
    assert uids(ranch.data_volumes()) == disks, "state that was to be kept outlives the pool, too"
    deletes = [r for r in plane.audit_records(ranch.since) if r.namespace == ranch.namespace and r.verb == "delete"]
    assert [record.name for record in deletes if record.resource in ("datavolumes", "persistentvolumeclaims")] == []
