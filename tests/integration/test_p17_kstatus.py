"""P17: tools that know only kstatus wait for pools: Helm 4, and the rules of kstatus themselves."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.documents import BEHAVIOR, READY_AFTER, pool_document, vm_template
from tests.controlplane.namespace import Namespace, PoolNamespace
from tests.controlplane.refusals import allow
from tests.controlplane.waits import eventually
from tests.controlplane.watch import watched
from tests.helm import Helm, helm_or_skip
from tests.kstatus import kstatus_of

pytestmark = pytest.mark.cluster

DEADLINE = {"vmherd.dev/progress-deadline-seconds": "4"}
BAD_IMAGE = {BEHAVIOR: "image-error", READY_AFTER: "100ms"}
AT_REST = {("Available", "True"), ("Progressing", "True")}
SLOW = {READY_AFTER: "1s"}


def is_finished(pool: dict[str, Any]) -> bool:
    """Return True if the pool's VMs are as its spec asks."""
    status = pool["status"]
    counts = [status.get(name, 0) for name in ("replicas", "readyReplicas", "updatedReplicas")]
    return counts == [pool["spec"]["replicas"]] * 3


def test_p17_kstatus_never_takes_an_unfinished_pool_for_current(pools: PoolNamespace) -> None:
    with watched(pools, pools.objects) as seen:
        pools.make(2, template=vm_template(vmi_annotations=SLOW))
        pools.wait_ready(2)
        pools.change_template(vm_template(vmi_annotations=SLOW, memory="128M"))
        pools.wait_ready(2)
        pools.scale(3)
        pools.wait_ready(3)
        eventually(lambda: kstatus_of(pools.read()).status == "Current", what="the pool is current")
    statuses = [kstatus_of(each).status for each in seen]
    assert statuses[0] == "InProgress", "a new pool was taken for finished"
    assert {"InProgress", "Current"} == set(statuses)
    unfinished = [each for each in seen if kstatus_of(each).status == "Current" and not is_finished(each)]
    assert unfinished == []
    told = [each["status"]["conditions"] for each in seen if kstatus_of(each).status == "Current"]
    assert {(each["type"], each["status"]) for conditions in told for each in conditions} == AT_REST


def test_r11_kubectl_waits_for_available_and_for_a_stall(owner: Namespace) -> None:
    """A wait is not satisfied by the status of an earlier spec: kubectl compares the generation of the status."""

    def wait(condition: str) -> None:
        owner.kubectl("wait", f"{owner.resource}/{owner.name}", f"--for=condition={condition}", "--timeout=60s")

    owner.make(2, annotations={"vmherd.dev/progress-deadline-seconds": "1"})
    for replicas in (2, 9):
        owner.scale(replicas)
        wait("Available")
        assert owner.read()["status"]["readyReplicas"] == replicas
    allow(owner, 9)
    owner.scale(12)
    wait("Progressing=false")


def chart_of(directory: Path, annotations: dict[str, str]) -> Path:
    """A chart with one pool of two VMs. `annotations` are the annotations of the VMIs.

    Only VMs that never become ready have a deadline. The others may need more time on a busy machine.
    """
    metadata = {"annotations": DEADLINE if annotations == BAD_IMAGE else {}}
    document = pool_document(2, template=vm_template(vmi_annotations=annotations), metadata=metadata)
    (directory / "templates").mkdir(parents=True, exist_ok=True)
    (directory / "Chart.yaml").write_text("apiVersion: v2\nname: web\nversion: 0.1.0\n")
    (directory / "templates" / "pool.json").write_text(json.dumps(document))
    return directory


@pytest.mark.e2e
def test_p17_helm_4_waits_for_the_vms_of_a_pool_and_fails_if_the_pool_is_stalled(
    pools: PoolNamespace, tmp_path: Path
) -> None:
    helm_or_skip(4)
    helm = Helm(4, tmp_path / "home", kubeconfig=pools.plane.kubeconfig, namespace=pools.namespace)
    chart = tmp_path / "web"
    helm("install", "web", str(chart_of(chart, SLOW)), "--wait", "--timeout=60s")
    assert is_finished(pools.read()), "Helm did not wait"
    failed = helm("upgrade", "web", str(chart_of(chart, BAD_IMAGE)), "--wait", "--timeout=30s", check=False)
    assert failed.returncode != 0
    assert "pool" in failed.stderr
    assert (pools.condition("Stalled") or {})["message"].startswith("pool-")
    helm("upgrade", "web", str(chart_of(chart, SLOW)), "--wait", "--timeout=60s")
    assert is_finished(pools.read())
