"""The commands on objects that KubeVirt's controller wrote. The status of these objects has no counters for updates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS, VMS
from informers.meta import ObjectKey
from tests import pool_builders
from tests.plugin.cluster import POOL, Cluster, Shell

ROOT = Path(__file__).resolve().parents[2]
RECORDED = json.loads((ROOT / "tests" / "recordings" / "kubevirt-pool-revision.json").read_text())
WEB = ObjectKey("demo", "web")


@pytest.fixture
def recorded(cluster: Cluster) -> Cluster:
    """The recorded pool with its revision and two VMs, all ready."""
    cluster.server.put(POOL, RECORDED["pool"])
    cluster.server.put(CONTROLLER_REVISIONS, RECORDED["revision"])
    for number in range(2):
        vm = vm_named(f"web-{number}")
        cluster.server.put(VMS, vm)
        cluster.put(VMIS, pool_builders.vmi(VMS.decode(json.dumps(vm).encode()), node=f"node-{number}"))
    return cluster


def vm_named(name: str) -> Any:
    vm = json.loads(json.dumps(RECORDED["stored"]))
    vm["metadata"] |= {"name": name, "uid": f"uid-{name}"}
    return vm


def change_image(cluster: Cluster) -> None:
    volume = {"containerDisk": {"image": "quay.io/containerdisks/fedora:41"}, "name": "root"}
    volumes = [volume, {"dataVolume": {"name": "data"}, "name": "data"}]
    template = {"spec": {"template": {"spec": {"volumes": volumes}}}}
    patch = {"spec": {"virtualMachineTemplate": template}, "metadata": {"generation": 2}}
    cluster.server.change(POOL, WEB, patch)


def test_a_pool_at_rest_is_rolled_out(recorded: Cluster, shell: Shell):
    assert shell.output("rollout status vmpool/web -n demo") == 'vmpool "web" successfully rolled out\n'
    row = shell.output("list vmpool -n demo").splitlines()[1].split()
    assert row[:4] == ["vmpool/web", "Running", "2/2", "2"]


def test_updated_vms_are_counted_by_their_revision_labels(recorded: Cluster, shell: Shell):
    change_image(recorded)
    line = 'Waiting for vmpool "web" rollout to finish: 0 out of 2 new VMs have been updated...\n'
    assert shell.output("rollout status vmpool/web -n demo --watch=false") == line
    row = shell.output("list vmpool -n demo").splitlines()[1].split()
    assert row[:4] == ["vmpool/web", "Updating", "2/2", "0"]


def test_the_revisions_of_kubevirt_are_a_history_to_return_to(recorded: Cluster, shell: Shell):
    [row] = json.loads(shell.output("rollout history vmpool/web -n demo -o json"))
    assert (row["revision"], row["isCurrent"], row["vms"]) == (1, True, 2)
    change_image(recorded)
    assert shell.output("rollout undo vmpool/web -n demo").endswith("/web rolled back\n")
    spec = recorded.server.document(POOL, WEB)["spec"]["virtualMachineTemplate"]["spec"]["template"]["spec"]
    assert spec["volumes"][0]["containerDisk"]["image"].endswith(":40")
    assert shell.output("rollout status vmpool/web -n demo") == 'vmpool "web" successfully rolled out\n'


def test_beside_kubevirt_the_plan_is_that_of_a_controller_that_takes_over(recorded: Cluster, shell: Shell):
    change_image(recorded)
    alone = json.loads(shell.output("plan vmpool/web -n demo -o json"))["actions"]
    assert any("three_way_merge" in action for action in alone)
    recorded.install_kubevirt("--pool-controller-threads=0")
    taking_over = json.loads(shell.output("plan vmpool/web -n demo -o json"))
    assert not any("three_way_merge" in action for action in taking_over["actions"])
    assert "takeover" in taking_over["held"]


@pytest.mark.parametrize("line", ["plan vmpool -n demo", "scale vmpool/web -n demo --replicas=1 --dry-run=client"])
def test_behind_kubevirts_controller_a_plan_says_who_runs_the_pool(recorded: Cluster, shell: Shell, line: str):
    recorded.install_kubevirt("--pool-controller-threads=0")
    out = shell.output(line)
    recorded.install_kubevirt()
    code, same, err = shell(line)
    assert (code, same) == (0, out)
    assert err == (
        "Note: vmherd would do this, but KubeVirt's own controller runs the pools now (KubeVirt reconciles "
        "virtualmachinepools.pool.kubevirt.io (Deployment kubevirt/virt-controller has no "
        "--pool-controller-threads=0))\n"
    )


def test_a_scale_that_is_written_has_no_note_about_kubevirts_controller(recorded: Cluster, shell: Shell):
    recorded.install_kubevirt()
    assert shell.output("scale vmpool/web -n demo --replicas=1").endswith("/web scaled\n")
