"""KubeVirt's simulated webhooks and launcher Pods on the real API server. vmherd works behind the webhooks."""

import json
from typing import Any

import pytest

from sandbox.admin import Admin, Rejected
from sandbox.controlplane import ControlPlane
from tests.controlplane.documents import is_ready, vm_template
from tests.controlplane.namespace import PoolNamespace
from tests.controlplane.programs import simulator
from tests.controlplane.waits import eventually
from tests.integration.launcher_plane import VALIDATING, is_served

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
    before = {name: vmi["metadata"]["uid"] for name, vmi in launched.vmis().items()}
    launched.scale(3)
    eventually(lambda: len(launched.vmis()) == 5)
    assert before.items() <= {name: vmi["metadata"]["uid"] for name, vmi in launched.vmis().items()}.items()


def test_a_dry_run_gets_defaults_and_rejections_and_changes_nothing(launched: PoolNamespace) -> None:
    launched.make_vm("vm", template=vm_template(runStrategy="Halted"))
    vms = f"/apis/kubevirt.io/v1/namespaces/{launched.namespace}/virtualmachines"
    before = launched.vms.get("vm")
    spec = {key: value for key, value in before["spec"].items() if key != "template"}
    spec["template"] = {"spec": {"domain": {"devices": {}}}}
    new = {**before, "metadata": {"name": "other"}, "spec": spec}
    made = launched.ask("POST", f"{vms}?dryRun=All", new)
    assert made["spec"]["template"]["spec"]["architecture"] == "amd64"
    with pytest.raises(Rejected, match="Running and RunStrategy are mutually exclusive"):
        launched.ask("POST", f"{vms}?dryRun=All", {**new, "spec": {**spec, "running": True}})
    with pytest.raises(Rejected, match='"vm" already exists'):
        launched.ask("POST", f"{vms}?dryRun=All", {**new, "metadata": {"name": "vm"}})
    launched.ask("PATCH", f"{vms}/vm?dryRun=All", {"spec": {"runStrategy": "Manual"}})
    assert launched.vms() == {"vm": launched.vms.get("vm")}
    assert launched.vms.get("vm")["spec"] == before["spec"]


def test_a_simulator_that_stops_leaves_no_webhooks(idle_plane: ControlPlane) -> None:
    with simulator(idle_plane, "--webhooks"):
        eventually(lambda: is_served(idle_plane, VALIDATING))
    assert not is_served(idle_plane, MUTATING)
    assert not is_served(idle_plane, VALIDATING)
    assert not is_served(idle_plane, "/apis/subresources.kubevirt.io/v1")


def running_pod(launched: PoolNamespace, name: str) -> dict[str, Any] | None:
    pods = [
        pod
        for pod in launched.all_of("pods", "v1")().values()
        if pod["metadata"]["annotations"]["kubevirt.io/domain"] == name
    ]
    return next((pod for pod in pods if pod["status"]["phase"] == "Running" and is_ready(pod)), None)


def test_a_vmi_of_a_lost_node_runs_until_the_node_is_out_of_service(launched: PoolNamespace) -> None:
    launched.make_vmi("alone")
    launcher = eventually(lambda: running_pod(launched, "alone"))["metadata"]["name"]
    node = launched.vmis()["alone"]["status"]["nodeName"]
    admin = Admin(launched.plane.kubeconfig)

    def tell(ready: str) -> None:
        status = {"conditions": [{"type": "Ready", "status": ready}]}
        body = json.dumps({"status": status}).encode()
        admin.send("PATCH", f"/api/v1/nodes/{node}/status", body, "application/strategic-merge-patch+json")

    def state() -> tuple[str, str, str | None]:
        status = launched.vmis()["alone"]["status"]
        [ready] = [each for each in status["conditions"] if each["type"] == "Ready"]
        return status["phase"], ready["status"], ready.get("reason")

    tell("Unknown")
    try:
        eventually(lambda: state() == ("Running", "False", None), what="the VMI is not ready, without a reason")
        launched.kubectl("delete", "pod", launcher, "--wait=false")  # as the taint eviction does after 300 s
        eventually(lambda: state() == ("Running", "False", "PodTerminating"), what="the Pod stays Terminating")
        launched.kubectl("taint", "node", node, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
        eventually(lambda: state()[0] == "Failed", what="the VMI fails")
    finally:
        launched.kubectl("taint", "node", node, "node.kubernetes.io/out-of-service-")
        tell("True")
