"""`kubectl vmherd scale`: the write, and the preview with the names of the VMs that leave."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from controller.kubevirt.resources import VMS
from controller.pool.plan import plan
from controller.runtime.actions import Delete
from plugin.views.scaling import preview
from tests import builders, pool_builders
from tests.builders import snapshot as set_snapshot
from tests.plugin import herds
from tests.plugin.cluster import Cluster, Shell

PATH = "virtualmachinepool.pool.kubevirt.io/web"


def pool_with_marks(cluster: Cluster, **fields: Any) -> None:
    """A pool of four VMs with disks: web-1 is not ready, web-3 is protected."""
    spec = pool_builders.vm_spec(disks=["data"])
    policy = {"selectionPolicy": {"sortPolicy": "DescendingOrder"}, "statePreservation": "Offline"}
    fields = {"replicas": 4, "scaleInStrategy": {"proactive": policy}, **fields}
    pool = pool_builders.pool(spec=spec, **fields)
    vms = [
        *pool_builders.vms(pool, 0, 2, spec=spec),
        pool_builders.vm("web-1", owner=pool, spec=spec, ready=False),
        pool_builders.vm("web-3", owner=pool, spec=spec, annotations={"vmherd.dev/protect": "true"}),
    ]
    cluster.put_pool(pool, vms, [pool_builders.vmi(vm) for vm in vms], [pool_builders.revision(pool)])


def test_scale_writes_the_number_through_the_subresource(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    assert shell.output("scale vmpool/web --replicas=3") == f"{PATH} scaled\n"
    [(method, path, params, body)] = cluster.writes
    assert (method, path.rpartition("/")[2]) == ("PATCH", "scale")
    assert params == {"fieldManager": "kubectl-vmherd"}
    assert body["spec"] == {"replicas": 3}


def test_a_preview_names_the_vms_that_leave_and_those_that_stay(cluster: Cluster, shell: Shell):
    pool_with_marks(cluster)
    assert shell.output("scale vmpool/web --replicas 2 --dry-run=client").splitlines() == [
        "would leave:  web-2, web-1 (not ready)     stays though next: web-3 (vmherd.dev/protect)",
        "disks: kept (statePreservation Offline)",
    ]
    assert cluster.writes == []


def test_a_preview_of_a_scale_out_names_the_new_vms(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    assert shell.output("scale vmpool/web --replicas=4 --dry-run=client") == "would create: web-2, web-3\n"
    assert shell.output("scale vmpool/web --replicas=2 --dry-run=client") == "would change nothing\n"


def test_a_preview_says_if_the_controller_would_not_scale(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster, scaleInStrategy={"unmanaged": {}})
    line = "held: 1 surplus virtual machines stay until a user deletes them: scale-in is unmanaged\n"
    assert shell.output("scale vmpool/web --replicas=1 --dry-run=client") == line


def test_a_preview_as_data(cluster: Cluster, shell: Shell):
    pool_with_marks(cluster)
    document = json.loads(shell.output("scale vmpool/web --replicas=3 --dry-run=client -o json"))
    assert document["leaving"] == [{"name": "web-2"}]
    assert document["staying"] == [{"name": "web-3", "why": "vmherd.dev/protect"}]


def test_disks_of_a_pool_without_state_preservation_are_deleted(cluster: Cluster, shell: Shell):
    pool_with_marks(cluster, scaleInStrategy=None)
    assert "disks: deleted with their VMs\n" in shell.output("scale vmpool/web --replicas=3 --dry-run=client")


@pytest.mark.parametrize("policy", ["", "Random", "Newest", "AscendingOrder"])
@pytest.mark.parametrize("replicas", [0, 2, 5])
def test_the_preview_names_the_vms_that_the_controller_deletes(policy: str, replicas: int):
    strategy = {"proactive": {"selectionPolicy": {"sortPolicy": policy}}} if policy else None
    pool = pool_builders.pool(replicas=6, generation=4, scaleInStrategy=strategy)
    vms = [pool_builders.vm(f"web-{n}", owner=pool, ready=n != 3, age_s=60 * n) for n in range(6)]
    snapshot = pool_builders.snapshot(pool, vms)
    scaled = pool_builders.pool(replicas=replicas, generation=5, scaleInStrategy=strategy)
    deletes = [
        action
        for action in plan(replace(snapshot, owner=scaled)).actions
        if isinstance(action, Delete) and action.resource is VMS
    ]
    assert [each.name for each in preview(snapshot, replicas).leaving] == [each.key.name for each in deletes]
    assert len(deletes) == 6 - replicas


def test_the_preview_of_a_set_follows_its_ranking():
    owner = builders.replicaset(replicas=3)
    vmis = [
        builders.vmi("a", owner=owner, annotations={"vmherd.dev/deletion-cost": "-1"}),
        builders.vmi("b", owner=owner, annotations={"vmherd.dev/protect": "true"}, ready=False),
        builders.vmi("c", owner=owner),
    ]
    given = preview(set_snapshot(owner, vmis), 1)
    assert [(each.name, each.why) for each in given.leaving] == [("a", "deletion cost -1"), ("c", "")]
    assert [each.name for each in given.staying] == ["b"]
    assert preview(set_snapshot(owner, vmis), 0).held == "1 surplus VMIs are protected"
    assert len(preview(set_snapshot(owner, vmis), 5).creating) == 2


def test_another_number_than_expected_is_refused(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster)
    line = "error: Expected replicas to be 5, was 2"
    assert shell.error("scale vmpool/web --replicas=3 --current-replicas=5") == line
    assert cluster.writes == []


def test_a_paused_pool_is_scaled_with_a_note(cluster: Cluster, shell: Shell):
    herds.pool_at_rest(cluster, paused=True)
    code, out, err = shell("scale vmpool/web --replicas=3")
    assert (code, out) == (0, f"{PATH} scaled\n")
    assert err == "Note: the pool is paused, so nothing is scaled until it is resumed.\n"


def test_the_number_is_required(shell: Shell):
    assert shell.error("scale vmpool/web", code=2).startswith("error: Missing option '--replicas'")
    assert shell.error("scale vmpool/web --replicas=-1", code=2).startswith("error: --replicas: -1 is not in the range")
