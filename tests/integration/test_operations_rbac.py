"""The chart's role allows every request of the controller, and a missing permission is detected."""

from pathlib import Path
from typing import Any

import pytest

from controller.config.settings import Config
from controller.preflight.permissions import permissions_needed
from sandbox.audit import AuditRecord, read_records
from tests.controlplane.documents import REVISION, SET_LABELS, owned_by, reference_to, vm_template
from tests.controlplane.namespace import PoolNamespace, SetNamespace
from tests.controlplane.programs import controller_process
from tests.controlplane.waits import eventually
from tests.release import NAMESPACE

pytestmark = pytest.mark.cluster


def test_with_exactly_the_listed_permissions_no_request_is_refused(
    idle_namespace: SetNamespace, tmp_path: Path
) -> None:
    orphan = idle_namespace.make_vmi("orphan")
    flags = ("--revision-history=0",)
    with controller_process(idle_namespace.plane, tmp_path, *flags) as program:
        live_through_a_set(idle_namespace, orphan)
        live_through_a_pool(idle_namespace.pools)
        eventually(lambda: idle_namespace.reasons()["SuccessfulResumed"], what="the Events arrive")
        assert program.stop() == 0
    needed = {
        (p.verb, p.resource, p.subresource) for p in permissions_needed(Config()) if p.subresource != "finalizers"
    }
    unused = {
        ("get", "virtualmachineinstances", ""),
        ("get", "virtualmachinepools", ""),
        ("get", "controllerrevisions", ""),
        ("patch", "controllerrevisions", ""),  # without a history, no template is rolled out again
        ("patch", "events", ""),
        # No VM here is a standby. test_standby.py pauses some with a role of these rules.
        *(("update", "virtualmachineinstances", each) for each in ("pause", "unpause")),
    }

    def asked() -> list[AuditRecord]:
        records = read_records(idle_namespace.plane.audit_log, idle_namespace.since)
        return [each for each in records if each.credential == program.credential]

    def is_all_used() -> bool:
        used = {(each.verb, each.resource, each.subresource) for each in asked() if each.resource}
        return {row for row in needed - used if row[0] != "list"} <= unused

    # The API server writes a watch to its log when the connection has ended.
    told = "nothing is asked for that the whole scenario does not use, lists apart: a streaming one is a watch"
    eventually(is_all_used, what=told)
    assert {each.username for each in asked()} == {f"system:serviceaccount:{NAMESPACE}:vmherd"}
    assert {(r.verb, r.resource, r.subresource, r.code) for r in asked() if r.code in (401, 403)} == set()


def live_through_a_set(sets: SetNamespace, orphan: dict[str, Any]) -> None:
    """Run through the life of a set: adoption, release, deletion of a surplus VMI, pause, and scale-in."""
    owner = sets.make(3)
    alive = sets.wait_for(3)
    assert alive["orphan"]["metadata"]["uid"] == orphan["metadata"]["uid"]
    sets.play_all()
    eventually(lambda: sets.status().get("readyReplicas") == 3, what="all are ready")
    sets.vmis.change("orphan", {"metadata": {"labels": {"app": None}}})
    eventually(lambda: len(owned_by(sets.alive(), owner)) == 3 and len(sets.alive()) == 4)
    sets.vmis.change("orphan", {"metadata": {"labels": SET_LABELS}})
    eventually(lambda: len(sets.alive()) == 3, what="the surplus is deleted")
    sets.change({"spec": {"paused": True}})
    eventually(lambda: sets.condition("ReplicaPaused"), what="paused")
    sets.change({"spec": {"paused": False, "replicas": 1}})
    sets.wait_for(1)


def live_through_a_pool(pools: PoolNamespace) -> None:
    """Let a pool create and update VMs, keep the disk of a deleted VM, prune an old revision, and restart a VM."""
    strategy = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}, "statePreservation": "Offline"}}
    pools.make(2, template=vm_template(disks=("root",)), scaleInStrategy=strategy)
    vms = pools.wait_for_ordinals(0, 1, ready=False)
    pools.make_disk("root-1", owner=vms["pool-1"])
    pools.change_template(vm_template(disks=("root",), memory="128M"))
    eventually(lambda: set(pools.revisions()) == {"pool-2"}, what="the first revision is pruned")
    pools.scale(1)
    pools.wait_for_ordinals(0, ready=False)
    kept = (pools.data_volumes()["root-1"], pools.claims()["root-1"])
    assert not any(disk["metadata"].get("ownerReferences") for disk in kept)
    pools.make(1, name="manual", template=vm_template(runStrategy="Manual"))
    vm = eventually(lambda: pools.vms().get("manual-0"), what="the VM is created")
    assert vm is not None
    pools.make_vmi("manual-0", labels={REVISION: "manual-1"}, ownerReferences=[reference_to(vm)])
    pools.change_template(vm_template(runStrategy="Manual", memory="128M"), name="manual")
    eventually(
        lambda: [each for each in pools.requests("update") if each.subresource == "restart"],
        what="a restart is requested",
    )
