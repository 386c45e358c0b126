"""Clusters that serve pools only in an old version, or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.admin import Admin
from sandbox.binaries import Binaries
from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl, new_namespace, running_plane
from tests.integration.controller_process import ReplicaSetNamespace, controller_process, eventually
from tests.integration.kubevirt_installation import DEFINITIONS, vmherd
from tests.integration.pool_namespace import POOL_LABELS, vm_template

pytestmark = pytest.mark.cluster

POOLS = "virtualmachinepools.pool.kubevirt.io"
ALONE = ("--mode", "standalone", "--no-leader-elect")


def pool(version: str) -> dict[str, Any]:
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": POOL_LABELS},
        "virtualMachineTemplate": vm_template(runStrategy="Halted"),
    }
    kind = {"apiVersion": f"pool.kubevirt.io/{version}", "kind": "VirtualMachinePool"}
    return {**kind, "metadata": {"name": "pool"}, "spec": spec}


@pytest.fixture(scope="module")
def old_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """A control plane for the tests of this file, which change and restore the definition of pools."""
    with running_plane(control_plane_binaries) as plane:
        yield plane


@pytest.fixture
def only_v1alpha1(old_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Serve pools as KubeVirt up to 1.6 does, while a test runs."""
    admin = Admin(old_plane.kubeconfig)
    path = f"{DEFINITIONS}/{POOLS}"
    definition = admin.get(path)
    versions = definition["spec"]["versions"]
    only = [{**each, "served": old, "storage": old} for each in versions for old in [each["name"] == "v1alpha1"]]
    serve(admin, path, definition, only)
    yield old_plane
    serve(admin, path, admin.get(path), versions)


def serve(admin: Admin, path: str, definition: dict[str, Any], versions: list[dict[str, Any]]) -> None:
    body = {**definition, "spec": {**definition["spec"], "versions": versions}}
    admin.send("PUT", path, json.dumps(body).encode(), "application/json")
    wanted = {each["name"] for each in versions if each["served"]}
    eventually(
        lambda: {each["version"] for each in admin.get("/apis/pool.kubevirt.io")["versions"]} == wanted,
        what=f"pools are served in {wanted}",
    )


@pytest.fixture
def namespace(old_plane: ControlPlane) -> Iterator[str]:
    with new_namespace(old_plane) as name:
        yield name


def test_pools_that_are_served_only_as_v1alpha1_are_reconciled(
    only_v1alpha1: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    sets = ReplicaSetNamespace(only_v1alpha1, namespace)
    with controller_process(only_v1alpha1, tmp_path, *ALONE) as program:
        sets.make_set(1)
        sets.kubectl.apply(pool("v1alpha1"))
        eventually(lambda: len(sets.alive()) == 1, what="the set has its VMI")
        [line] = program.lines(msg="mode")
        assert line["versions"] == {"pool": "v1alpha1"}

        def members() -> dict[str, str]:
            vms = sets.kubectl.json("get", "vm")["items"]
            return {vm["metadata"]["name"]: vm["metadata"]["ownerReferences"][0]["apiVersion"] for vm in vms}

        wanted = "pool.kubevirt.io/v1alpha1"
        eventually(lambda: members() == {"pool-0": wanted, "pool-1": wanted}, what="the pool has its VMs")
        eventually(lambda: sets.kubectl.json("get", "vmpool", "pool").get("status", {}).get("replicas") == 2)
        sets.kubectl("delete", "vmpool", "pool", "--timeout=30s")
        eventually(lambda: not members(), what="the VMs go with their pool")
        assert program.stop() == 0
    sets.kubectl.apply(pool("v1alpha1"))
    sets.kubectl(
        "patch", "vmpool", "pool", "--type=merge", "-p", '{"metadata":{"finalizers":["pool.kubevirt.io/finalizer"]}}'
    )
    done = vmherd(only_v1alpha1.kubeconfig, "cleanup", "--mode", "standalone")
    assert "1 objects cleaned up" in done.stdout, done.stderr


def test_sets_are_reconciled_without_pools_and_pools_as_soon_as_they_are_served(
    old_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    admin, kubectl = Admin(old_plane.kubeconfig), Kubectl(old_plane.kubeconfig)
    definition = admin.get(f"{DEFINITIONS}/{POOLS}")
    kubectl("delete", "crd", POOLS, "--timeout=30s")
    sets = ReplicaSetNamespace(old_plane, namespace)
    with controller_process(old_plane, tmp_path, *ALONE) as program:
        sets.make_set(1)
        eventually(lambda: len(sets.alive()) == 1, what="the set has its VMI")
        message = "the cluster does not serve this kind: its objects are reconciled as soon as it does"
        [line] = program.lines(msg=message)
        assert line["kind"] == POOLS
        body = {**definition, "metadata": {"name": POOLS}}
        del body["status"]
        admin.send("POST", DEFINITIONS, json.dumps(body).encode(), "application/json")
        eventually(lambda: kubectl("get", "vmpool", check=False).returncode == 0, what="pools are served")
        sets.kubectl.apply(pool("v1beta1"))
        eventually(lambda: len(sets.kubectl.json("get", "vm")["items"]) == 2, what="the pool has its VMs")
        sets.kubectl("delete", "vmpool", "pool", "--timeout=30s")
        assert program.stop() == 0
