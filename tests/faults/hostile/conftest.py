"""The cluster for hostile input. All its tests share one control plane and one controller."""

from collections.abc import Iterator

import pytest

from sandbox.binaries import Binaries
from tests.cluster import running_plane
from tests.faults.hostile.cluster import HostileCluster, Tenant, hostile_cluster


@pytest.fixture(scope="session")
def hostile(control_plane_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileCluster]:
    with (
        running_plane(control_plane_binaries) as plane,
        hostile_cluster(plane, tmp_path_factory.mktemp("hostile"), "--debug-endpoints") as cluster,
    ):
        yield cluster


@pytest.fixture
def tenant(hostile: HostileCluster) -> Iterator[Tenant]:
    yield hostile.tenant()
    hostile.check()
