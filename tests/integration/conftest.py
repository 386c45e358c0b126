"""A shared controller for most tests, and a namespace for each test."""

from collections.abc import Iterator

import pytest

from sandbox.binaries import Binaries
from sandbox.controlplane import ControlPlane
from tests.cluster import running_plane
from tests.controlplane.namespace import Namespace, PoolNamespace, SetNamespace, new_pool_namespace
from tests.controlplane.programs import ControllerProcess, controller_process, simulator
from tests.integration.idle_plane import idle_namespace, idle_plane, proxied, proxy
from tests.integration.kubevirt_installation import kubevirt_plane
from tests.integration.launcher_plane import launched, launcher_plane, metrics

__all__ = [
    "idle_namespace",
    "idle_plane",
    "kubevirt_plane",
    "launched",
    "launcher_plane",
    "metrics",
    "proxied",
    "proxy",
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
    with controller_process(control_plane, tmp_path_factory.mktemp("controller")) as program:
        yield program


@pytest.fixture
def sets(control_plane: ControlPlane, running: ControllerProcess, namespace: str) -> SetNamespace:
    """The test's namespace. The shared controller reconciles its replica sets."""
    assert running.working
    return SetNamespace(control_plane, namespace, running)


@pytest.fixture(scope="session")
def pool_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """The control plane for the tests of pools. A simulator runs its VMs."""
    with running_plane(control_plane_binaries) as plane, simulator(plane):
        yield plane


@pytest.fixture(scope="session")
def pool_controller(pool_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerProcess]:
    """The shared controller for pools. Tests that stop or start a controller use another control plane."""
    with controller_process(pool_plane, tmp_path_factory.mktemp("pool-controller")) as program:
        yield program


@pytest.fixture
def pools(pool_plane: ControlPlane, pool_controller: ControllerProcess) -> Iterator[PoolNamespace]:
    """The test's namespace. The shared controller and the simulator work on its objects."""
    assert pool_controller.working
    with new_pool_namespace(pool_plane, pool_controller) as pools:
        yield pools


@pytest.fixture(params=["set", "pool"])
def owner(pools: PoolNamespace, request: pytest.FixtureRequest) -> Namespace:
    """The test's namespace for tests of both kinds. The simulator runs the VMIs of sets, too."""
    return pools if request.param == "pool" else pools.sets


@pytest.fixture(scope="session")
def broken_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """A control plane that tests break, repair and restore. Each test starts its own controller."""
    with running_plane(control_plane_binaries) as plane:
        yield plane


@pytest.fixture
def own_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """A control plane for one test, which may break it."""
    with running_plane(control_plane_binaries) as plane:
        yield plane
