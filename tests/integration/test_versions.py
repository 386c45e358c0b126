"""Clusters that serve pools only in an old version, or not at all."""

import json
from pathlib import Path

import pytest

from sandbox.admin import Admin
from sandbox.controlplane import MANAGER, ControlPlane
from tests.cluster import Kubectl
from tests.controlplane.documents import FINALIZER, pool_document, vm_template
from tests.controlplane.namespace import SetNamespace
from tests.controlplane.programs import controller_process
from tests.controlplane.waits import eventually
from tests.integration.kubevirt_installation import DEFINITIONS, vmherd

pytestmark = pytest.mark.cluster

HALTED = vm_template(runStrategy="Halted")
POOLS = "virtualmachinepools.pool.kubevirt.io"
V1ALPHA1 = "pool.kubevirt.io/v1alpha1"
ALONE = ("--mode", "standalone", "--no-leader-elect")


def serve_only_v1alpha1(kubectl: Kubectl) -> None:
    """Serve pools as KubeVirt up to 1.6 does."""
    admin = kubectl.admin
    path = f"{DEFINITIONS}/{POOLS}"
    definition = admin.get(path)
    for version in definition["spec"]["versions"]:
        version["served"] = version["storage"] = version["name"] == "v1alpha1"
    admin.send("PUT", path, json.dumps(definition).encode(), "application/json")
    # kubectl reads the list of all groups. The server updates this list later than the page of one group.
    eventually(
        lambda: [line for line in kubectl("api-versions").stdout.split() if line.startswith("pool.")] == [V1ALPHA1],
        what="one version",
    )


def test_pools_that_are_served_only_as_v1alpha1_are_reconciled(own_plane: ControlPlane, tmp_path: Path) -> None:
    serve_only_v1alpha1(Kubectl(own_plane.kubeconfig))
    # A garbage collector that has watched pools as v1beta1 misses the deletion of a pool.
    own_plane.stop_component(MANAGER)
    own_plane.start_component(MANAGER)
    sets = SetNamespace(own_plane, "default")
    with controller_process(own_plane, tmp_path, *ALONE) as program:
        sets.make(1)
        sets.kubectl.apply(pool_document(2, version="v1alpha1", template=HALTED))
        eventually(lambda: len(sets.alive()) == 1, what="the set has its VMI")
        [line] = program.lines(msg="mode")
        assert line["versions"] == {"pool": "v1alpha1"}

        def members() -> dict[str, str]:
            vms = sets.kubectl.json("get", "vm")["items"]
            return {vm["metadata"]["name"]: vm["metadata"]["ownerReferences"][0]["apiVersion"] for vm in vms}

        eventually(lambda: members() == {"pool-0": V1ALPHA1, "pool-1": V1ALPHA1}, what="the pool has its VMs")
        eventually(lambda: sets.kubectl.json("get", "vmpool", "pool").get("status", {}).get("replicas") == 2)
        sets.kubectl("delete", "vmpool", "pool", "--timeout=30s")
        eventually(lambda: not members(), what="the VMs go with their pool")
        assert program.stop() == 0
    sets.kubectl.apply(pool_document(2, version="v1alpha1", template=HALTED))
    sets.kubectl("patch", "vmpool", "pool", "--type=merge", "-p", f'{{"metadata":{{"finalizers":["{FINALIZER}"]}}}}')
    done = vmherd(own_plane.kubeconfig, "cleanup", "--mode", "standalone")
    assert "1 object cleaned up" in done.stdout, done.stderr


def test_sets_are_reconciled_without_pools_and_pools_as_soon_as_they_are_served(
    own_plane: ControlPlane, tmp_path: Path
) -> None:
    admin, kubectl = Admin(own_plane.kubeconfig), Kubectl(own_plane.kubeconfig)
    definition = admin.get(f"{DEFINITIONS}/{POOLS}")
    kubectl("delete", "crd", POOLS, "--timeout=30s")
    sets = SetNamespace(own_plane, "default")
    with controller_process(own_plane, tmp_path, *ALONE) as program:
        sets.make(1)
        eventually(lambda: len(sets.alive()) == 1, what="the set has its VMI")
        message = "the cluster does not serve this kind: its objects are reconciled as soon as it does"
        [line] = program.lines(msg=message)
        assert line["kind"] == POOLS
        body = {**definition, "metadata": {"name": POOLS}}
        del body["status"]
        admin.send("POST", DEFINITIONS, json.dumps(body).encode(), "application/json")
        eventually(lambda: kubectl("get", "vmpool", check=False).returncode == 0, what="pools are served")
        sets.kubectl.apply(pool_document(2, template=HALTED))
        eventually(lambda: len(sets.kubectl.json("get", "vm")["items"]) == 2, what="the pool has its VMs")
        assert program.stop() == 0
