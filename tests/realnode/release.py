"""A release of the chart whose Pods run on the real node."""

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from sandbox.audit import AuditRecord, read_records
from tests.charts.releases import Site
from tests.controlplane.namespace import PoolNamespace, SetNamespace
from tests.controlplane.waits import eventually
from tests.realnode.image import IMAGE
from tests.realnode.node import Node
from tools.chart.generated import CHART

NAME, _, TAG = IMAGE.rpartition("/")[2].partition(":")
VALUES = {
    "mode": "standalone",
    "image": {"registry": "localhost", "repository": NAME, "tag": TAG, "pullPolicy": "Never"},
}
OBJECTS = Path(__file__).with_name("objects")
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
        return self.holder().partition("_")[0]

    def holder(self) -> str:
        """The process that holds the lease, or ""."""
        lease = self.site.kubectl.json("get", "lease", "vmherd")
        return str(lease["spec"].get("holderIdentity") or "")

    def restarts(self) -> dict[str, int]:
        return {name: status_of(pod)["restartCount"] for name, pod in self.pods().items()}

    def wait_until_ready(self, count: int = 2) -> None:
        def there() -> bool:
            pods = self.pods().values()
            ready = [status_of(pod).get("ready") and "deletionTimestamp" not in pod["metadata"] for pod in pods]
            return ready.count(True) == count

        eventually(there, what=f"{count} ready Pods")

    def sets(self) -> SetNamespace:
        return SetNamespace(self.site.plane, self.site.namespace)

    def pools(self) -> PoolNamespace:
        return PoolNamespace(self.site.plane, self.site.namespace)

    def kill(self, pod: str, signal: str = "SIGKILL") -> None:
        """Send a signal to the process of the Pod's container."""
        self.node.containers("task", "kill", f"--signal={signal}", container_of(self.pods()[pod]))

    def python(self, pod: str, program: str) -> Any:
        """Run a program in the Pod's container, and return the JSON document that it prints.

        A kubelet that has just started does not know its Pods yet.
        """
        command = ("exec", pod, "--", "python", "-c", program)
        return json.loads(eventually(lambda: self.site.kubectl(*command, check=False).stdout, what=program))

    def requests(self, since: int) -> list[AuditRecord]:
        """The requests of the release's accounts."""
        account = f"system:serviceaccount:{self.site.namespace}:"
        records = read_records(self.site.plane.audit_log, since)
        return [record for record in records if record.username.startswith(account)]

    def writers(self, since: int, namespace: str) -> list[str]:
        """The Pods that created and deleted VMIs, in the order of their requests. A Pod that writes again is listed
        again.
        """
        writes = [
            record
            for record in self.requests(since)
            if (record.resource, record.namespace) == ("virtualmachineinstances", namespace)
            and record.verb in ("create", "delete")
        ]
        pods = [pod_of(record) for record in sorted(writes, key=lambda each: each.request_received_timestamp)]
        return [pod for pod, _ in groupby(pods)]

    def tokens(self, since: int) -> set[str]:
        """The IDs of the tokens that the release's Pods used."""
        return {record.credential for record in self.requests(since)}

    def refused(self, since: int) -> set[tuple[str, str, int]]:
        return {(each.verb, each.resource, each.code) for each in self.requests(since) if each.code in (401, 403)}


TOKEN_ID = """
import base64, json, pathlib
claims = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount/token").read_text().split(".")[1]
print(json.dumps("JTI=" + json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["jti"]))
"""
"""A program that prints the ID of the Pod's token."""


def document(name: str) -> dict[str, Any]:
    """An object from the folder `objects`."""
    found: dict[str, Any] = yaml.safe_load((OBJECTS / f"{name}.yaml").read_text())
    return found


def pod_of(record: AuditRecord) -> str:
    """The Pod whose token a request had."""
    [name] = record.user.extra["authentication.kubernetes.io/pod-name"]
    return name


def status_of(pod: dict[str, Any]) -> dict[str, Any]:
    """The status of the Pod's only container."""
    return next(iter(pod["status"].get("containerStatuses", ())), {"restartCount": 0})


def container_of(pod: dict[str, Any]) -> str:
    return str(status_of(pod)["containerID"].rpartition("/")[2])
