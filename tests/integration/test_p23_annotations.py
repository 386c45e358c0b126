"""P23: a wrong annotation is in an Event, in the status and in `kubectl vmherd why`, until it is corrected."""

from __future__ import annotations

import pytest

from plugin.cli import main
from tests.integration.controller_process import ReplicaSetNamespace, eventually
from tests.integration.pool_namespace import PoolNamespace

pytestmark = pytest.mark.cluster


def why(of: ReplicaSetNamespace, name: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["why", name, f"--kubeconfig={of.plane.kubeconfig}", "-n", of.namespace]) == 0
    return capsys.readouterr().out


def told(of: ReplicaSetNamespace) -> list[str]:
    return [each["message"] for each in of.events() if each["reason"] == "InvalidAnnotation"]


def test_p23_a_wrong_annotation_of_a_pool_and_of_its_vms_is_reported_until_it_is_corrected(
    pools: PoolNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    pools.make_pool(2, annotations={"vmherd.dev/partitions": "1"})
    pools.wait_ready(2)
    unknown = "annotation vmherd.dev/partitions is unknown, so it has no effect; did you mean vmherd.dev/partition?"
    assert eventually(lambda: pools.pool_status().get("problem")) == unknown
    eventually(lambda: told(pools) == [unknown])
    eventually(lambda: pools.pool_status()["printableStatus"] == "Running")
    assert f"  wrong    {unknown}\n" in why(pools, "vmpool/pool", capsys)

    pools.change_pool({"metadata": {"annotations": {"vmherd.dev/partitions": None}}})
    eventually(lambda: "problem" not in pools.pool_status())
    pools.mark_vm("pool-1", deletion_cost="low")
    cost = 'VM pool-1: annotation vmherd.dev/deletion-cost is "low": it must be an integer, so it counts as 0'
    eventually(lambda: pools.pool_status().get("problem") == cost)
    eventually(lambda: told(pools) == [unknown, cost])
    pools.mark_vm("pool-1", deletion_cost="1")
    eventually(lambda: "problem" not in pools.pool_status())
    pools.change_vmi("pool-0", {"metadata": {"annotations": {"vmherd.dev/protect": "true"}}})
    eventually(lambda: str(pools.pool_status().get("problem")).startswith("VMI pool-0: annotation vmherd.dev/protect"))
    assert "  wrong    VMI pool-0: " in why(pools, "vmpool/pool", capsys)


def test_p23_a_wrong_annotation_of_a_vmi_is_reported_by_its_set_until_it_is_corrected(
    sets: ReplicaSetNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    sets.make_set(1)
    [name] = sets.wait_for(1)
    sets.play(name)
    sets.change_vmi(name, {"metadata": {"annotations": {"vmherd.dev/protect": "yes"}}})
    wrong = f'VMI {name}: annotation vmherd.dev/protect is "yes": it must be "true" or "false", so it is protected'
    eventually(lambda: sets.status().get("problem") == wrong)
    eventually(lambda: told(sets) == [wrong])
    assert f"  wrong    {wrong}\n" in why(sets, "vmirs/herd", capsys)
    sets.change_vmi(name, {"metadata": {"annotations": {"vmherd.dev/protect": "true"}}})
    eventually(lambda: "problem" not in sets.status())
