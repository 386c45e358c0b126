"""virt-launcher Pods, nodes and migrations of the simulator on the real API server.

A Service and a disruption budget see the Pods as on a real cluster.
"""

import json
from typing import Any

import pytest

from sandbox.admin import Admin, Rejected
from tests.controlplane.documents import is_ready, vm_template
from tests.controlplane.namespace import PoolNamespace
from tests.controlplane.waits import eventually

pytestmark = pytest.mark.cluster

MASQUERADE = {
    "networks": [{"name": "default", "pod": {}}],
    "domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}}]}},
}


class Launched(PoolNamespace):
    def pods(self, name: str = "") -> list[dict[str, Any]]:
        """The Pods of a VMI, or of all VMIs."""
        items = self.all_of("pods", "v1")().values()
        return [pod for pod in items if name in ("", pod["metadata"]["annotations"]["kubevirt.io/domain"])]

    def running_pod(self, name: str) -> dict[str, Any] | None:
        return next((pod for pod in self.pods(name) if pod["status"]["phase"] == "Running" and is_ready(pod)), None)

    def evict(self, pod: dict[str, Any]) -> str:
        """Evict a Pod, and return the denial; "" if the Pod was evicted."""
        name = pod["metadata"]["name"]
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        try:
            self.all_of("pods", "v1").send("POST", f"{name}/eviction", body=body)
        except Rejected as denied:
            return f"{denied.status} {denied}"
        return ""

    def migrations(self) -> list[dict[str, Any]]:
        return list(self.all_of("virtualmachineinstancemigrations")().values())

    def start(self, name: str = "vm", **spec: Any) -> dict[str, Any]:
        """Create a VM, wait for its Pod, and return the Pod."""
        self.make_vm(name, template=vm_template(vmi_spec={**MASQUERADE, **spec}))
        return eventually(lambda: self.running_pod(name), what=f"{name} has a ready Pod")


@pytest.fixture
def cluster(launched: PoolNamespace) -> Launched:
    return Launched(launched.plane, launched.namespace)


def test_a_vmi_has_a_pod_that_a_service_and_a_disruption_budget_find(cluster: Launched) -> None:
    selector = {"app": "pool"}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    service["spec"] = {"selector": selector, "ports": [{"port": 80}]}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}}
    budget["spec"] = {"minAvailable": 1, "selector": {"matchLabels": selector}}
    cluster.kubectl.apply(service, budget)
    pod = cluster.start()
    vmi = cluster.vmis()["vm"]
    assert pod["metadata"]["labels"]["kubevirt.io/created-by"] == vmi["metadata"]["uid"]
    assert [owner["kind"] for owner in pod["metadata"]["ownerReferences"]] == ["VirtualMachineInstance"]
    assert pod["spec"]["nodeName"] == vmi["status"]["nodeName"]
    active = {pod["metadata"]["uid"]: pod["spec"]["nodeName"]}
    eventually(lambda: cluster.vmis()["vm"]["status"].get("activePods") == active, what="the VMI names its Pod")
    assert pod["status"]["podIP"] == vmi["status"]["interfaces"][0]["ipAddress"]

    def addresses() -> list[str]:
        slices = cluster.kubectl.json("get", "endpointslices")["items"]
        return [address for each in slices for end in each["endpoints"] or () for address in end["addresses"]]

    assert eventually(addresses, what="the Service has an endpoint") == [pod["status"]["podIP"]]
    eventually(lambda: cluster.kubectl.json("get", "pdb", "web")["status"].get("currentHealthy") == 1)
    cluster.vms.delete("vm")
    eventually(lambda: not cluster.pods(), what="the Pod goes with its VMI")


def test_an_eviction_migrates_a_vmi_that_keeps_its_uid(cluster: Launched) -> None:
    pod = cluster.start(evictionStrategy="LiveMigrate")
    before = cluster.vmis()["vm"]
    source = before["status"]["nodeName"]
    # The migration lasts one second. It waits as long as it finds no other node.
    others = {each["metadata"]["name"] for each in cluster.kubectl.json("get", "nodes")["items"]} - {source}
    cluster.kubectl("cordon", *others)
    try:
        denials = [cluster.evict(pod), cluster.evict(pod)]
    finally:
        cluster.kubectl("uncordon", *others)
    assert [denial.partition(" ")[0] for denial in denials] == ["429", "429"]
    assert "Eviction triggered evacuation of VMI" in denials[0]
    assert "Evacuation in progress" in denials[1]
    eventually(lambda: len(cluster.pods("vm")) == 2, what="the VMI has two Pods")

    def is_moved() -> bool:
        return bool(cluster.vmis()["vm"]["status"]["nodeName"] != source)

    eventually(is_moved, what="the VMI is on another node")
    after = cluster.vmis()["vm"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["labels"]["kubevirt.io/nodeName"] == after["status"]["nodeName"]
    state = after["status"]["migrationState"]
    assert (state["sourceNode"], state["targetNode"], state["completed"]) == (source, after["status"]["nodeName"], True)
    assert "evacuationNodeName" not in after["status"]
    eventually(lambda: [each["status"].get("phase") for each in cluster.migrations()] == ["Succeeded"])
    eventually(lambda: sorted(each["status"]["phase"] for each in cluster.pods("vm")) == ["Running", "Succeeded"])


def test_a_vmi_of_a_lost_node_runs_until_the_node_is_out_of_service(cluster: Launched) -> None:
    cluster.make_vmi("alone")
    launcher = eventually(lambda: cluster.running_pod("alone"))["metadata"]["name"]
    node = cluster.vmis()["alone"]["status"]["nodeName"]
    admin = Admin(cluster.plane.kubeconfig)

    def tell(ready: str) -> None:
        status = {"conditions": [{"type": "Ready", "status": ready}]}
        body = json.dumps({"status": status}).encode()
        admin.send("PATCH", f"/api/v1/nodes/{node}/status", body, "application/strategic-merge-patch+json")

    def state() -> tuple[str, str, str | None]:
        status = cluster.vmis()["alone"]["status"]
        [ready] = [each for each in status["conditions"] if each["type"] == "Ready"]
        return status["phase"], ready["status"], ready.get("reason")

    tell("Unknown")
    try:
        eventually(lambda: state() == ("Running", "False", None), what="the VMI is not ready, without a reason")
        cluster.kubectl("delete", "pod", launcher, "--wait=false")  # as the taint eviction does after 300 s
        eventually(lambda: state() == ("Running", "False", "PodTerminating"), what="the Pod stays Terminating")
        cluster.kubectl("taint", "node", node, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
        eventually(lambda: state()[0] == "Failed", what="the VMI fails")
    finally:
        cluster.kubectl("taint", "node", node, "node.kubernetes.io/out-of-service-")
        tell("True")
