"""One controller for all tests that can share it, and a namespace for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox.binaries import Binaries
from sandbox.controlplane import ControlPlane
from tests.cluster import running_plane
from tests.integration.controller_process import ControllerProcess, ReplicaSetNamespace, controller_process
from tests.integration.idle_plane import idle_namespace, idle_plane
from tests.integration.pool_namespace import pool_controller, pool_plane, pools

__all__ = [
    "control_plane",
    "idle_namespace",
    "idle_plane",
    "own_plane",
    "pool_controller",
    "pool_plane",
    "pools",
    "running",
    "sets",
]


@pytest.fixture(scope="session")
def control_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """One for the tests of this folder: the shared controller would work on everybody's sets."""
    with running_plane(control_plane_binaries) as plane:
        yield plane


@pytest.fixture(scope="session")
def running(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerProcess]:
    """The controller on it. Tests that stop or start one have a control plane of their own."""
    with controller_process(control_plane, tmp_path_factory.mktemp("controller")) as program:
        yield program


@pytest.fixture
def sets(control_plane: ControlPlane, running: ControllerProcess, namespace: str) -> ReplicaSetNamespace:
    """The test's namespace, with the shared controller at work."""
    assert running.working
    return ReplicaSetNamespace(control_plane, namespace)


@pytest.fixture
def own_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """A control plane that the test may break."""
    with running_plane(control_plane_binaries) as plane:
        yield plane
