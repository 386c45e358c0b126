"""A control plane with the simulator's webhooks, nodes and virt-launcher Pods, and with a controller."""

from collections.abc import Iterator

import pytest

from sandbox.admin import Admin, Rejected
from sandbox.binaries import Binaries
from sandbox.controlplane import ControlPlane
from tests.cluster import running_plane
from tests.controlplane.namespace import PoolNamespace, new_pool_namespace
from tests.controlplane.programs import controller_process, simulator
from tests.controlplane.waits import eventually
from tests.integration.metrics_api import MetricsAPI, metrics_api

VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/virt-api-validator"


def is_served(plane: ControlPlane, path: str) -> bool:
    try:
        Admin(plane.kubeconfig).get(path)
    except Rejected:
        return False
    return True


@pytest.fixture(scope="session")
def launcher_plane(
    control_plane_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
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
