"""A shared controller for most tests, and a namespace for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.binaries import Binaries
from sandbox.controlplane import ControlPlane
from tests.cluster import new_namespace, running_plane
from tests.controlplane.namespace import Namespace, PoolNamespace, SetNamespace, controller_for, new_pool_namespace
from tests.controlplane.programs import ControllerProcess, controller_process, simulator
from tests.controlplane.waits import eventually
from tests.faults.proxy.threads import ThreadedProxy, fault_proxy_in_thread
from tests.integration.kubevirt_installation import VALIDATING, is_served, under_own_groups, with_kubevirts_status
from tests.integration.metrics_api import MetricsAPI, metrics_api
from tests.release import LEASE, NAMESPACE


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


@pytest.fixture(scope="session")
def idle_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """A control plane without a shared controller. Each test runs a controller for itself, and counts the requests."""
    with running_plane(control_plane_binaries) as plane:
        yield plane


@pytest.fixture
def idle_namespace(idle_plane: ControlPlane) -> Iterator[SetNamespace]:
    """A new namespace on the idle control plane. Its sets and all leases are deleted before the next test."""
    with new_namespace(idle_plane) as name:
        sets = SetNamespace(idle_plane, name)
        yield sets
        # The controller of a later test would still fill the sets of a namespace that is being deleted.
        sets.objects.delete()
        # The controller of a later test would wait for the end of the lease of a killed one.
        for lease in sets.admin.get("/apis/coordination.k8s.io/v1/leases")["items"]:
            meta = lease["metadata"]
            if meta["name"] == "vmherd":  # the API server has leases, too
                sets.admin.send("DELETE", LEASE.replace(NAMESPACE, meta["namespace"]))


@pytest.fixture
def proxy(idle_namespace: SetNamespace) -> Iterator[ThreadedProxy]:
    with fault_proxy_in_thread(idle_namespace.plane.url, idle_namespace.plane.ca) as proxy:
        yield proxy


@pytest.fixture
def proxied(proxy: ThreadedProxy, idle_namespace: SetNamespace, tmp_path: Path) -> Iterator[ControllerProcess]:
    """A controller whose requests go through the proxy. The test's own requests go directly to the API server."""
    with controller_for(idle_namespace, tmp_path, through=proxy.write_kubeconfig) as program:
        yield program


@pytest.fixture(scope="session")
def kubevirt_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """A cluster for KubeVirt. It serves the two kinds under KubeVirt's groups, with KubeVirt's status fields, and under
    the project's groups.
    """
    with running_plane(control_plane_binaries) as plane:
        under_own_groups(plane)
        with_kubevirts_status(plane)
        yield plane


@pytest.fixture(scope="session")
def launcher_plane(
    control_plane_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A control plane with the simulator's webhooks, nodes and virt-launcher Pods, and with a controller."""
    with running_plane(control_plane_binaries) as plane, simulator(plane, "--webhooks", "--launchers"):
        eventually(lambda: is_served(plane, VALIDATING), what="the webhooks are registered")
        with controller_process(plane, tmp_path_factory.mktemp("controller"), "--disruption-budgets"):
            yield plane


@pytest.fixture
def launched(launcher_plane: ControlPlane) -> Iterator[PoolNamespace]:
    """The test's namespace. Its VMIs run in Pods."""
    with new_pool_namespace(launcher_plane) as pools:
        yield pools


@pytest.fixture(scope="session")
def metrics(launcher_plane: ControlPlane) -> Iterator[MetricsAPI]:
    with metrics_api(launcher_plane) as api:
        yield api
