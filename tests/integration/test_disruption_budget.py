"""P27 with nodes, launcher Pods, and the real disruption controller."""

import pytest

from tests.controlplane.documents import Document
from tests.controlplane.namespace import PoolNamespace
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
