"""P27 and `kubectl vmherd drain` with nodes, launcher Pods, and the real disruption controller."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from plugin.cli import main
from sandbox.admin import Admin
from sandbox.controlplane import ControlPlane
from tests.controlplane.documents import Document, is_ready
from tests.controlplane.namespace import PoolNamespace, new_pool_namespace
from tests.controlplane.waits import eventually

pytestmark = pytest.mark.cluster

DRAIN = ("--pod-selector=kubevirt.io=virt-launcher", "--delete-emptydir-data", "--timeout=3s")


def budgets(owner: PoolNamespace) -> dict[str, Document]:
    return owner.all_of("poddisruptionbudgets", "policy/v1")()


def minima(owner: PoolNamespace) -> dict[str, int]:
    return {name: each["spec"].get("minAvailable", -1) for name, each in budgets(owner).items()}


def healthy(owner: PoolNamespace) -> int:
    """The number of Pods that the disruption controller counts."""
    return sum(int(each.get("status", {}).get("currentHealthy", 0)) for each in budgets(owner).values())


def test_p27_a_budget_follows_the_size_and_a_drain_leaves_what_it_allows(launched: PoolNamespace) -> None:
    launched.make(2, annotations={"vmherd.dev/disruption-budget": "1"})
    eventually(lambda: minima(launched) == {"virtualmachinepool-pool": 1}, what="the budget of two VMs")
    launched.scale(3)
    eventually(lambda: minima(launched) == {"virtualmachinepool-pool": 2}, what="the budget rises")
    eventually(lambda: healthy(launched) == 3, what="the disruption controller counts three Pods")
    pods = launched.all_of("pods", "v1")
    nodes = sorted({pod["spec"]["nodeName"] for pod in pods().values()})
    # No Pod can take the place of an evicted one.
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    launched.quotas.make(quota)
    eventually(lambda: launched.quotas.get("none").get("status", {}).get("used"), what="the quota counts")
    try:
        done = launched.kubectl("drain", *nodes, *DRAIN, check=False)
    finally:
        launched.kubectl("uncordon", *nodes)
    assert "Cannot evict pod as it would violate the pod's disruption budget" in done.stderr
    assert len(pods()) == 2, done.stdout
    launched.quotas.delete("none")
    eventually(lambda: healthy(launched) == 3, what="the evicted VM runs again")
    launched.scale(1)
    eventually(lambda: minima(launched) == {"virtualmachinepool-pool": 0}, what="the budget falls")


ROLLING = {"vmherd.dev/rolling-update": "maxUnavailable=1"}


def nodes_of(pools: PoolNamespace, prefix: str = "") -> Counter[str]:
    """The number of VMIs on each node. Only VMIs whose name starts with the prefix count."""
    return Counter(
        vmi["status"]["nodeName"]
        for name, vmi in pools.vmis().items()
        if name.startswith(prefix) and (vmi.get("status") or {}).get("nodeName")
    )


@contextmanager
def watched(pools: PoolNamespace, wanted: int) -> Iterator[list[int]]:
    """The number of missing or unready VMIs of the pool, read again and again while the block runs."""
    seen: list[int] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.05):
            ready = sum(is_ready(vmi) for name, vmi in pools.vmis().items() if name.startswith("pool-"))
            seen.append(wanted - ready)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def test_a_drain_moves_the_vms_of_a_node_and_respects_the_limit_of_their_pool(
    launcher_plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    every_vmi, admin = "/apis/kubevirt.io/v1/virtualmachineinstances", Admin(launcher_plane.kubeconfig)
    eventually(lambda: not admin.get(every_vmi)["items"], what="the VMIs of other tests are gone")
    with new_pool_namespace(launcher_plane) as pools:
        pools.make(6, maxUnavailable=1)
        pools.sets.make(2, annotations=ROLLING)
        pools.wait_ready(6)
        eventually(lambda: sum(map(is_ready, pools.alive().values())) == 8, what="all VMIs are ready")
        [(node, of_pool)] = nodes_of(pools, "pool-").most_common(1)
        assert of_pool >= 2, "the limit of the pool matters only if two of its VMs are on the node"
        number = nodes_of(pools)[node]
        with watched(pools, 6) as unready:
            code = main(["drain", node, f"--kubeconfig={launcher_plane.kubeconfig}", "--timeout=60s"])
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
