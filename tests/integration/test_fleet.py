"""A whole fleet through its life: 500 VMs with two disks each, updated, scaled in with their state kept, and out again.

What the controller did is read from the API server's audit log, what users had from a watch on the VMIs.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sandbox.kubectl import kubectl_path
from tests.integration.herd import eventually
from tests.integration.ranch import Ranch, vm_template

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

FLEET = int(os.environ.get("VMHERD_TEST_FLEET", "500"))
FEWER = FLEET // 5
MOST_UNAVAILABLE = FLEET // 10
PATIENCE_S = 300.0
DISKS = ("root", "data")


class Availability:
    """How many VMIs of a namespace are ready, at each change of any of them, in the server's own order."""

    def __init__(self, ready: set[str]) -> None:
        self.least = len(ready)
        self._ready = ready

    def note(self, change: dict[str, Any]) -> None:
        vmi = change["object"]
        name, leaving = vmi["metadata"]["name"], "deletionTimestamp" in vmi["metadata"]
        conditions = (vmi.get("status") or {}).get("conditions") or ()
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        if change["type"] != "DELETED" and ready and not leaving:
            self._ready.add(name)
        else:
            self._ready.discard(name)
        self.least = min(self.least, len(self._ready))


@contextmanager
def watched(ranch: Ranch) -> Iterator[Availability]:
    """Watch the VMIs, all of which are ready, while the block runs."""
    path = f"/apis/kubevirt.io/v1/namespaces/{ranch.namespace}/virtualmachineinstances"
    listed = json.loads(ranch.kubectl("get", "--raw", path).stdout)
    availability = Availability({vmi["metadata"]["name"] for vmi in listed["items"]})
    raw = f"{path}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}&timeoutSeconds=3600"
    command = [kubectl_path(), "--kubeconfig", str(ranch.plane.kubeconfig), "get", "--raw", raw]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:

        def follow() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                availability.note(json.loads(line))

        reader = threading.Thread(target=follow)
        reader.start()
        try:
            yield availability
            assert process.poll() is None, "the watch ended before the test did"
        finally:
            process.terminate()
            reader.join()


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
    assert availability.least >= FLEET - MOST_UNAVAILABLE
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
