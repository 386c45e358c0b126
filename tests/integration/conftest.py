"""A shared controller for most tests, and a namespace for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox.binaries import Binaries
from sandbox.controlplane import ControlPlane
from tests.cluster import running_plane
from tests.integration.controller_process import (
    PATIENT_LEASE,
    ControllerProcess,
    ReplicaSetNamespace,
    controller_process,
)
from tests.integration.idle_plane import idle_namespace, idle_plane, proxied, proxy
from tests.integration.kubevirt_installation import kubevirt_plane
from tests.integration.launcher_plane import launcher_plane
from tests.integration.pool_namespace import pool_controller, pool_plane, pools

__all__ = [
    "control_plane",
    "idle_namespace",
    "idle_plane",
    "kubevirt_plane",
    "launcher_plane",
    "own_plane",
    "pool_controller",
    "pool_plane",
    "pools",
    "proxied",
    "proxy",
    "running",
    "sets",
]


@pytest.fixture(scope="session")
def integration_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """A control plane for this folder. Other folders cannot use it, because the shared controller works on all sets in
    the cluster.
    """
    with running_plane(control_plane_binaries) as plane:
        yield plane


@pytest.fixture(scope="session")
def control_plane(integration_plane: ControlPlane) -> ControlPlane:
    return integration_plane


@pytest.fixture(scope="session")
def running(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerProcess]:
    """The shared controller. Tests that stop or start a controller use another control plane."""
    with controller_process(control_plane, tmp_path_factory.mktemp("controller"), *PATIENT_LEASE) as program:
        yield program


@pytest.fixture
def sets(control_plane: ControlPlane, running: ControllerProcess, namespace: str) -> ReplicaSetNamespace:
    """The test's namespace. The shared controller reconciles its replica sets."""
    assert running.working
    return ReplicaSetNamespace(control_plane, namespace)


@pytest.fixture
def own_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """A control plane for one test, which may break it."""
    with running_plane(control_plane_binaries) as plane:
        yield plane
