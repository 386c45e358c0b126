"""`kubectl vmherd drain` on the real control plane, with nodes, launcher Pods, and KubeVirt's rules for evictions."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from plugin.cli import main
from sandbox.binaries import Binaries
from sandbox.controlplane import ControlPlane
from tests.cluster import running_plane
from tests.integration.controller_process import controller_process, eventually
from tests.integration.pool_namespace import PoolNamespace, is_vm_ready, new_pool_namespace, simulator
from tests.integration.test_webhooks import VALIDATING, is_served

pytestmark = pytest.mark.cluster

ROLLING = {"vmherd.dev/rolling-update": "maxUnavailable=1"}


@pytest.fixture(scope="module")
def plane(control_plane_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with (
        running_plane(control_plane_binaries) as plane,
        simulator(plane, "--webhooks", "--launchers"),
        controller_process(plane, tmp_path_factory.mktemp("controller")),
    ):
        eventually(lambda: is_served(plane, VALIDATING), what="the webhooks are registered")
        yield plane


def nodes_of(pools: PoolNamespace) -> Counter[str]:
    return Counter(
        vmi["status"]["nodeName"] for vmi in pools.vmis().values() if (vmi.get("status") or {}).get("nodeName")
    )


@contextmanager
def watched(pools: PoolNamespace, wanted: int) -> Iterator[list[int]]:
    """The number of missing or unready VMIs of the pool, read again and again while the block runs."""
    seen: list[int] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.05):
            ready = sum(is_vm_ready(vmi) for name, vmi in pools.vmis().items() if name.startswith("pool-"))
            seen.append(wanted - ready)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def test_a_drain_moves_the_vms_of_a_node_and_respects_the_limit_of_their_pool(
    plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    with new_pool_namespace(plane) as pools:
        pools.make_pool(6, maxUnavailable=1)
        pools.make_set(2, annotations=ROLLING)
        pools.wait_ready(6)
        eventually(lambda: sum(map(is_vm_ready, pools.alive().values())) == 8, what="all VMIs are ready")
        [(node, number)] = nodes_of(pools).most_common(1)
        assert number >= 2
        with watched(pools, 6) as unready:
            code = main(["drain", node, f"--kubeconfig={plane.kubeconfig}", "--timeout=60s"])
        out, err = capsys.readouterr()
        try:
            assert (code, err) == (0, "")
            assert out.count("evicting vmi ") == number
            assert out.endswith(f"node/{node} drained\n")
            assert node not in nodes_of(pools)
            assert max(unready) == 1
            pools.wait_ready(6)
        finally:
            pools.kubectl("uncordon", node)
