"""P27 with nodes, launcher Pods, and the real disruption controller."""

from collections.abc import Iterator

import pytest

from sandbox.controlplane import ControlPlane
from tests.controlplane.documents import Document
from tests.controlplane.namespace import Namespace, new_pool_namespace
from tests.controlplane.waits import eventually

pytestmark = pytest.mark.cluster

DRAIN = ("--pod-selector=kubevirt.io=virt-launcher", "--delete-emptydir-data", "--timeout=3s")


@pytest.fixture(params=["set", "pool"])
def owner(launcher_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A namespace with launcher Pods. The controller keeps budgets."""
    with new_pool_namespace(launcher_plane) as pools:
        yield pools if request.param == "pool" else pools.sets


def budgets(owner: Namespace) -> dict[str, Document]:
    return owner.all_of("poddisruptionbudgets", "policy/v1")()


def minima(owner: Namespace) -> dict[str, int]:
    return {name: each["spec"].get("minAvailable", -1) for name, each in budgets(owner).items()}


def healthy(owner: Namespace) -> int:
    """The number of Pods that the disruption controller counts."""
    return sum(int(each.get("status", {}).get("currentHealthy", 0)) for each in budgets(owner).values())


def test_p27_a_budget_follows_the_size_and_a_drain_leaves_what_it_allows(owner: Namespace) -> None:
    name = f"{owner.kind.lower()}-{owner.name}"
    owner.make(2, annotations={"vmherd.dev/disruption-budget": "1"})
    eventually(lambda: minima(owner) == {name: 1}, what="the budget of two VMs")
    owner.scale(3)
    eventually(lambda: minima(owner) == {name: 2}, what="the budget rises")
    eventually(lambda: healthy(owner) == 3, what="the disruption controller counts three Pods")
    pods = owner.all_of("pods", "v1")
    nodes = sorted({pod["spec"]["nodeName"] for pod in pods().values()})
    # No Pod can take the place of an evicted one.
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    owner.quotas.make(quota)
    eventually(lambda: owner.quotas.get("none").get("status", {}).get("used"), what="the quota counts")
    try:
        done = owner.kubectl("drain", *nodes, *DRAIN, check=False)
    finally:
        owner.kubectl("uncordon", *nodes)
    assert "Cannot evict pod as it would violate the pod's disruption budget" in done.stderr
    assert len(pods()) == 2, done.stdout
    owner.quotas.delete("none")
    eventually(lambda: healthy(owner) == 3, what="the evicted VM runs again")
    owner.scale(1)
    eventually(lambda: minima(owner) == {name: 0}, what="the budget falls")
