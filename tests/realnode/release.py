"""A release of the chart whose Pods run on the real node."""

import json
from typing import Any

from msgspec import Struct

from sandbox.audit import AuditRecord
from tests.charts.releases import Site
from tests.controlplane.waits import eventually
from tests.realnode.image import IMAGE
from tests.realnode.node import Node
from tools.chart.generated import CHART

NAME, _, TAG = IMAGE.rpartition("/")[2].partition(":")
VALUES = {
    "mode": "standalone",
    "image": {"registry": "localhost", "repository": NAME, "tag": TAG, "pullPolicy": "Never"},
}
WAIT = ("--wait", "--timeout=80s")


class Release(Struct, frozen=True):
    site: Site
    node: Node

    def install(self, **values: Any) -> None:
        self.site.helm("install", "vmherd", str(CHART), *WAIT, values={**VALUES, **values})

    def upgrade(self, **values: Any) -> None:
        self.site.helm("upgrade", "vmherd", str(CHART), *WAIT, values={**VALUES, **values})

    def pods(self) -> dict[str, dict[str, Any]]:
        """The controller's Pods, by name."""
        found = self.site.kubectl.json("get", "pods", "--selector=app.kubernetes.io/component=controller")["items"]
        return {pod["metadata"]["name"]: pod for pod in found}

    def leader(self) -> str:
        """The name of the Pod that holds the lease, or ""."""
        lease = self.site.kubectl.json("get", "lease", "vmherd")
        return str(lease["spec"].get("holderIdentity") or "").partition("_")[0]

    def restarts(self) -> dict[str, int]:
        return {name: status_of(pod)["restartCount"] for name, pod in self.pods().items()}

    def wait_until_ready(self, count: int = 2) -> None:
        def there() -> bool:
            pods = self.pods().values()
            ready = [status_of(pod).get("ready") and "deletionTimestamp" not in pod["metadata"] for pod in pods]
            return ready == [True] * count

        eventually(there, what=f"{count} ready Pods")

    def kill(self, pod: str) -> None:
        """Kill the process of the Pod's container, like the kernel when it has no memory left."""
        self.node.kill(container_of(self.pods()[pod]))

    def python(self, pod: str, program: str) -> Any:
        """Run a program in the Pod's container, and return the JSON document that it prints."""
        return json.loads(self.site.kubectl("exec", pod, "--", "python", "-c", program).stdout)

    def writers(self, since: int, namespace: str) -> list[str]:
        """The Pods that created and deleted VMIs, in the order of their requests. A Pod that writes again is listed
        again.
        """
        requests = [
            record
            for record in self.site.plane.audit_records(since)
            if record.resource == "virtualmachineinstances"
            and record.namespace == namespace
            and record.verb in ("create", "delete")
            and record.username.startswith(f"system:serviceaccount:{self.site.namespace}:")
        ]
        pods = [pod_of(record) for record in sorted(requests, key=lambda each: each.request_received_timestamp)]
        return [pod for place, pod in enumerate(pods) if place == 0 or pods[place - 1] != pod]


def pod_of(record: AuditRecord) -> str:
    """The Pod whose token a request had."""
    [name] = record.user.extra["authentication.kubernetes.io/pod-name"]
    return name


def status_of(pod: dict[str, Any]) -> dict[str, Any]:
    """The status of the Pod's only container."""
    return next(iter(pod["status"].get("containerStatuses", ())), {"restartCount": 0})


def container_of(pod: dict[str, Any]) -> str:
    return str(status_of(pod)["containerID"].rpartition("/")[2])
