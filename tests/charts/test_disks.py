"""Disks that outlive their VMs, where the API server asks for more before an ownerReference may go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.binaries import Binaries
from sandbox.controlplane import ControlPlane
from sandbox.crds import CRD_DIRECTORIES
from tests.charts.releases import Site, bare_plane
from tests.charts.test_live import released
from tests.integration.herd import eventually, stays
from tests.integration.ranch import Ranch, simulator, uids, vm_template

pytestmark = [pytest.mark.cluster, pytest.mark.e2e, pytest.mark.parametrize("major", [4], indirect=True)]

OFFLINE = {"proactive": {"statePreservation": "Offline", "selectionPolicy": {"sortPolicy": "DescendingOrder"}}}


@pytest.fixture(scope="module")
def plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """As on OpenShift: who takes an ownerReference off an object must be allowed to delete the object."""
    plugins = ("OwnerReferencesPermissionEnforcement",)
    with bare_plane(control_plane_binaries, CRD_DIRECTORIES[1], admission_plugins=plugins) as plane, simulator(plane):
        yield plane


def scaled_in(site: Site) -> Ranch:
    """A pool of two that is to keep the disks of the one that goes."""
    ranch = Ranch(site.plane, site.namespace)
    ranch.make_pool(2, template=vm_template(disks=("root",)), scaleInStrategy=OFFLINE)
    ranch.wait_for_ordinals(0, 1)
    eventually(lambda: len(ranch.claims()) == 2, what="the disks")
    ranch.scale(1)
    return ranch


def test_whoever_may_delete_disks_keeps_them(site: Site, tmp_path: Path) -> None:
    site.install(rbac={"deleteDisks": True})
    with released(site, tmp_path):
        ranch = scaled_in(site)
        ranch.wait_for_ordinals(0)
        stays(lambda: {"root-0", "root-1"} == ranch.data_volumes().keys() == ranch.claims().keys(), what="the disks")


def test_whoever_may_not_loses_none_and_says_what_is_missing(site: Site, tmp_path: Path) -> None:
    site.install()
    with released(site, tmp_path):
        ranch = scaled_in(site)
        condition = eventually(lambda: ranch.pool_condition("ReplicaFailure"), what="it says so")
        assert condition["reason"] == "FailedScaleIn"
        assert "cannot set an ownerRef on a resource you can't delete" in condition["message"]
        disks = uids(ranch.data_volumes()), uids(ranch.claims())
        stays(lambda: (uids(ranch.data_volumes()), uids(ranch.claims())) == disks, what="the disks")
        assert ranch.vms().keys() == {"pool-0", "pool-1"}, "the VM is held"
