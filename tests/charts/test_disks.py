"""Preserved disks on an API server that needs one more permission for the removal of an ownerReference."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.binaries import Binaries
from sandbox.controlplane import CRD_DIRECTORIES, ControlPlane
from tests.charts.releases import Site, bare_plane
from tests.charts.test_live import released
from tests.controlplane.documents import owner_uid, vm_template
from tests.controlplane.namespace import PoolNamespace
from tests.controlplane.programs import simulator
from tests.controlplane.waits import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

OFFLINE = {"proactive": {"statePreservation": "Offline", "selectionPolicy": {"sortPolicy": "DescendingOrder"}}}


@pytest.fixture(scope="module")
def plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """A control plane as in OpenShift: only a user who may delete an object may remove its ownerReferences."""
    plugins = ("OwnerReferencesPermissionEnforcement",)
    with bare_plane(control_plane_binaries, CRD_DIRECTORIES[1], admission_plugins=plugins) as plane, simulator(plane):
        yield plane


def scaled_in(site: Site) -> PoolNamespace:
    """A pool that was scaled in from two VMs to one. It preserves the disks of deleted VMs."""
    pools = PoolNamespace(site.plane, site.namespace)
    pools.make(2, template=vm_template(disks=("root",)), scaleInStrategy=OFFLINE)
    pools.wait_for_ordinals(0, 1)
    eventually(lambda: len(pools.claims()) == 2, what="the disks")
    pools.scale(1)
    return pools


def test_with_the_permission_to_delete_disks_the_disks_are_preserved(site: Site, tmp_path: Path) -> None:
    site.install(rbac={"deleteDisks": True})
    with released(site, tmp_path):
        pools = scaled_in(site)
        pools.wait_for_ordinals(0)
        assert not owner_uid(pools.data_volumes()["root-1"]), "no garbage collector deletes the disk"
        assert {"root-0", "root-1"} == pools.data_volumes().keys() == pools.claims().keys()


def test_without_the_permission_no_disk_is_lost_and_the_condition_names_it(site: Site, tmp_path: Path) -> None:
    site.install()
    with released(site, tmp_path, "--debug-endpoints") as program:
        pools = scaled_in(site)
        condition = eventually(lambda: pools.condition("ReplicaFailure"), what="the condition")
        assert condition["reason"] == "FailedScaleIn"
        assert "cannot set an ownerRef on a resource you can't delete" in condition["message"]
        program.settle(site.namespace, pools.admin)
        assert {"root-0", "root-1"} == pools.data_volumes().keys() == pools.claims().keys()
        assert pools.vms().keys() == {"pool-0", "pool-1"}, "the VM is held"
