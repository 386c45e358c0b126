"""P23: a wrong annotation is in an Event, in the status and in `kubectl vmherd why`, until it is corrected."""

import pytest

from plugin.cli import main
from tests.controlplane.namespace import Namespace, PoolNamespace
from tests.controlplane.waits import reacts

pytestmark = pytest.mark.cluster


def why(of: Namespace, name: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["why", name, f"--kubeconfig={of.plane.kubeconfig}", "-n", of.namespace]) == 0
    return capsys.readouterr().out


def told(of: Namespace) -> list[str]:
    return [each["message"] for each in of.events() if each["reason"] == "InvalidAnnotation"]


def test_p23_a_wrong_annotation_of_a_pool_and_of_its_vms_is_reported_until_it_is_corrected(
    pools: PoolNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    pools.make(2, annotations={"vmherd.dev/partitions": "1"})
    pools.wait_ready(2)
    unknown = "annotation vmherd.dev/partitions is unknown, so it has no effect; did you mean vmherd.dev/partition?"
    assert reacts(lambda: pools.status().get("problem")) == unknown
    reacts(lambda: told(pools) == [unknown])
    reacts(lambda: pools.status()["printableStatus"] == "Running")
    assert f"  wrong    {unknown}\n" in why(pools, "vmpool/pool", capsys)

    pools.change({"metadata": {"annotations": {"vmherd.dev/partitions": None}}})
    reacts(lambda: "problem" not in pools.status())
    pools.vms.annotate("pool-1", deletion_cost="low")
    cost = 'VM pool-1: annotation vmherd.dev/deletion-cost is "low": it must be an integer, so it counts as 0'
    reacts(lambda: pools.status().get("problem") == cost)
    reacts(lambda: told(pools) == [unknown, cost])
    pools.vms.annotate("pool-1", deletion_cost="1")
    reacts(lambda: "problem" not in pools.status())
    pools.vmis.change("pool-0", {"metadata": {"annotations": {"vmherd.dev/protect": "true"}}})
    reacts(lambda: str(pools.status().get("problem")).startswith("VMI pool-0: annotation vmherd.dev/protect"))
    assert "  wrong    VMI pool-0: " in why(pools, "vmpool/pool", capsys)
