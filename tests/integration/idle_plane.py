"""A control plane without a shared controller. Each test runs a controller for itself, and counts the requests."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.admin import Admin, Rejected
from sandbox.binaries import Binaries
from sandbox.controlplane import ControlPlane
from tests.cluster import new_namespace, running_plane
from tests.faults.threads import ThreadedProxy, fault_proxy_in_thread
from tests.integration.controller_process import (
    GROUP_VERSION,
    PATIENT_LEASE,
    ControllerProcess,
    ReplicaSetNamespace,
    controller_process,
)
from tests.release import NAMESPACE

SHORT_LEASE = ("--lease-duration", "10s", "--renew-deadline", "8s", "--retry-period", "400ms")
"""Flags for tests in which a lease expires."""

LEASE_S = 10.0
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/vmherd"


@pytest.fixture(scope="session")
def idle_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    with running_plane(control_plane_binaries) as plane:
        yield plane


@pytest.fixture
def idle_namespace(idle_plane: ControlPlane) -> Iterator[ReplicaSetNamespace]:
    """A new namespace on the idle control plane. Its sets and the lease are deleted before the next test."""
    with new_namespace(idle_plane) as name:
        yield ReplicaSetNamespace(idle_plane, name)
        # The controller of a later test would still fill the sets of a namespace that is being deleted.
        Admin(idle_plane.kubeconfig).send("DELETE", path_of_sets(name))
        with contextlib.suppress(Rejected):  # not every test runs a controller that acquires the lease
            Admin(idle_plane.kubeconfig).send("DELETE", LEASE)


@pytest.fixture
def proxy(idle_namespace: ReplicaSetNamespace) -> Iterator[ThreadedProxy]:
    with fault_proxy_in_thread(idle_namespace.plane.url, idle_namespace.plane.ca) as proxy:
        yield proxy


@pytest.fixture
def proxied(proxy: ThreadedProxy, idle_namespace: ReplicaSetNamespace, tmp_path: Path) -> Iterator[ControllerProcess]:
    """A controller whose requests go through the proxy. The test's own requests go directly to the API server."""
    with controller_process(idle_namespace.plane, tmp_path, *PATIENT_LEASE, through=proxy.write_kubeconfig) as program:
        yield program


def path_of_sets(namespace: str) -> str:
    return f"/apis/{GROUP_VERSION}/namespaces/{namespace}/virtualmachineinstancereplicasets"


def created(sets: ReplicaSetNamespace) -> Counter[str]:
    """The number of successful create requests for each VMI."""
    return _written(sets, "create", 201)


def deleted(sets: ReplicaSetNamespace) -> Counter[str]:
    """The number of successful delete requests for each VMI."""
    return _written(sets, "delete", 200)


def _written(sets: ReplicaSetNamespace, verb: str, code: int) -> Counter[str]:
    return Counter(
        record.name
        for record in sets.requests(verb)
        if record.resource == "virtualmachineinstances" and record.code == code
    )
