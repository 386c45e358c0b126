"""virt-launcher Pods, nodes and migrations of the simulator on the real API server.

A Service and a disruption budget see the Pods as on a real launched.
"""

import json
from typing import Any

import pytest

from sandbox.admin import Admin
from tests.controlplane.documents import is_ready
from tests.controlplane.namespace import PoolNamespace
from tests.controlplane.waits import eventually

pytestmark = pytest.mark.cluster


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
