"""The metrics API (`metrics.k8s.io/v1beta1`, Pods only) of a cluster, as metrics-server serves it.

kube-apiserver forwards the requests: an APIService points to a Service of type ExternalName, and the Service points to
a thread of the test. The thread lists the cluster's real Pods by the selector of the request. The test sets the load of
a namespace. The thread divides this load equally among the running Pods.
"""

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import trustme

from sandbox.admin import Admin
from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl
from tests.controlplane.documents import document
from tests.controlplane.https import https_server

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
NAMESPACE, SERVICE = "kube-system", "metrics-server"
MEMORY = "229Mi"

PODS = re.compile(rf"/apis/{GROUP}/{VERSION}/namespaces/(?P<namespace>[^/]+)/pods")

DISCOVERY = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": f"{GROUP}/{VERSION}",
    "resources": [{"name": "pods", "singularName": "pod", "namespaced": True, "kind": "PodMetrics", "verbs": ["list"]}],
}


class MetricsAPI:
    """The load of each namespace, and the answers of the metrics API."""

    def __init__(self, plane: ControlPlane) -> None:
        self._admin = Admin(plane.kubeconfig)
        self._loads: dict[str, int] = {}

    def load(self, namespace: str, millicores: int) -> None:
        """Set the CPU usage of all Pods of this namespace together."""
        self._loads[namespace] = millicores

    def answer(self, target: str, _document: object) -> tuple[int, dict[str, Any]]:
        """The HTTP status and the document for a path with its query."""
        parts = urlsplit(target)
        if parts.path == f"/apis/{GROUP}/{VERSION}":
            return 200, DISCOVERY
        asked = PODS.fullmatch(parts.path)
        if asked is None:
            return 404, {}
        items = self._metrics(asked["namespace"], self._pods(asked["namespace"], parts.query))
        return 200, {"kind": "PodMetricsList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": items}

    def _pods(self, namespace: str, query: str) -> list[dict[str, Any]]:
        """The running Pods that are not terminating. Only these Pods use CPU."""
        items = self._admin.get(f"/api/v1/namespaces/{namespace}/pods?{query}")["items"]
        return [
            pod
            for pod in items
            if (pod.get("status") or {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]

    def _metrics(self, namespace: str, pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        # Whole millicores, rounded down: the autoscaler rounds the value of each Pod up, and would see too much load.
        share = self._loads.get(namespace, 0) // max(len(pods), 1)
        return [
            {
                "kind": "PodMetrics",
                "apiVersion": f"{GROUP}/{VERSION}",
                "metadata": {key: pod["metadata"][key] for key in ("name", "namespace", "labels")},
                "timestamp": now,
                "window": "1s",
                "containers": [{"name": "compute", "usage": {"cpu": f"{share}m", "memory": MEMORY}}],
            }
            for pod in pods
        ]


@contextmanager
def metrics_api(plane: ControlPlane) -> Iterator[MetricsAPI]:
    """Serve a metrics API in the cluster while the block runs. Users with the role `view`, `edit` or `admin` may read
    it.
    """
    api = MetricsAPI(plane)
    authority = trustme.CA(organization_name="metrics API of a test")
    kubectl = Kubectl(plane.kubeconfig, NAMESPACE)
    with https_server(authority, f"{SERVICE}.{NAMESPACE}.svc", api.answer) as port:
        kubectl.apply(*_registration(authority, port))
        try:
            kubectl("wait", "--for=condition=Available", f"apiservice/{VERSION}.{GROUP}", "--timeout=30s")
            yield api
        finally:
            kubectl("delete", "apiservice", f"{VERSION}.{GROUP}")
            kubectl("delete", "service", SERVICE)


def _registration(authority: trustme.CA, port: int) -> list[dict[str, Any]]:
    """The APIService with its Service, and the aggregated role that metrics-server installs for users."""
    whose = ("view", "edit", "admin")
    labels = {f"rbac.authorization.k8s.io/aggregate-to-{role}": "true" for role in whose}
    rules = [{"apiGroups": [GROUP], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]}]
    role = {"name": "system:aggregated-metrics-reader", "labels": labels}
    spec = {
        "group": GROUP,
        "version": VERSION,
        "service": {"namespace": NAMESPACE, "name": SERVICE, "port": port},
        "caBundle": base64.b64encode(authority.cert_pem.bytes()).decode(),
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    }
    return [
        document("v1", "Service", SERVICE, {"type": "ExternalName", "externalName": "localhost"}, namespace=NAMESPACE),
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": role, "rules": rules},
        document("apiregistration.k8s.io/v1", "APIService", f"{VERSION}.{GROUP}", spec),
    ]
