"""One controller for all tests that can share it, and a namespace for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox.binaries import Binaries
from sandbox.controlplane import ControlPlane
from tests.cluster import running_plane
from tests.integration.herd import Herd, Place, herd
from tests.integration.ranch import ranch, ranch_plane, rancher
from tests.integration.vacant import vacant, vacant_plane

__all__ = [
    "control_plane",
    "own_plane",
    "place",
    "ranch",
    "ranch_plane",
    "rancher",
    "running",
    "vacant",
    "vacant_plane",
]


@pytest.fixture(scope="session")
def control_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """One for the tests of this folder: the shared controller would work on everybody's sets."""
    with running_plane(control_plane_binaries) as plane:
        yield plane


@pytest.fixture(scope="session")
def running(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Herd]:
    """The controller on it. Tests that stop or start one have a control plane of their own."""
    with herd(control_plane, tmp_path_factory.mktemp("herd")) as program:
        yield program


@pytest.fixture
def place(control_plane: ControlPlane, running: Herd, namespace: str) -> Place:
    """The test's namespace, with the shared controller at work."""
    assert running.working
    return Place(control_plane, namespace)


@pytest.fixture
def own_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """A control plane that the test may break."""
    with running_plane(control_plane_binaries) as plane:
        yield plane
