"""A control plane without a shared controller. Each test runs a controller for itself, and counts the requests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.binaries import Binaries
from sandbox.controlplane import ControlPlane
from tests.cluster import new_namespace, running_plane
from tests.controlplane.namespace import SetNamespace, controller_for
from tests.controlplane.programs import ControllerProcess
from tests.faults.proxy.threads import ThreadedProxy, fault_proxy_in_thread
from tests.release import NAMESPACE

SHORT_LEASE = ("--lease-duration", "10s", "--renew-deadline", "8s", "--retry-period", "400ms")
"""Flags for tests in which a lease expires."""

LEASES = "/apis/coordination.k8s.io/v1/leases"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/vmherd"


@pytest.fixture(scope="session")
def idle_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
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
        for lease in sets.admin.get(LEASES)["items"]:
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
