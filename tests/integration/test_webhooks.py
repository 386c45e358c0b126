"""KubeVirt's simulated webhooks, nodes and launcher Pods on the real API server. P27 with its disruption controller."""

import pytest

from sandbox.controlplane import ControlPlane
from tests.controlplane.documents import Document, document, is_ready, uids
from tests.controlplane.namespace import PoolNamespace
from tests.controlplane.programs import simulator
from tests.controlplane.waits import eventually
from tests.integration.kubevirt_installation import VALIDATING, is_served

pytestmark = pytest.mark.cluster

MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/virt-api-mutator"


def test_a_pool_and_a_set_run_behind_the_webhooks_and_nothing_is_updated_for_the_defaults(
    launched: PoolNamespace,
) -> None:
    launched.make(2)
    launched.sets.make(2)
    eventually(lambda: len(launched.vmis()) == 4 and all(map(is_ready, launched.vmis().values())))
    vm = launched.vms.get("pool-0")["spec"]["template"]["spec"]
    assert (vm["architecture"], vm["domain"]["machine"]) == ("amd64", {"type": "q35"})
    vmi = launched.vmis()["pool-0"]["spec"]
    assert vmi["domain"]["firmware"]["uuid"] == vm["domain"]["firmware"]["uuid"]
    assert vmi["evictionStrategy"] == "None"
    before = uids(launched.vmis())
    launched.scale(3)
    eventually(lambda: len(launched.vmis()) == 5)
    assert before.items() <= uids(launched.vmis()).items()


def test_a_simulator_that_stops_leaves_no_webhooks(idle_plane: ControlPlane) -> None:
    with simulator(idle_plane, "--webhooks"):
        eventually(lambda: is_served(idle_plane, VALIDATING))
    assert not is_served(idle_plane, MUTATING)
    assert not is_served(idle_plane, VALIDATING)
    assert not is_served(idle_plane, "/apis/subresources.kubevirt.io/v1")


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
    launched.quotas.make(document("v1", "ResourceQuota", "none", {"hard": {"pods": "0"}}))
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
