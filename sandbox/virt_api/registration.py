"""This module builds the objects that make kube-apiserver send requests to virt-api. All functions are pure."""

from __future__ import annotations

import base64
from typing import Any, Final

GROUP: Final = "subresources.kubevirt.io"
VERSION: Final = "v1"
ROOT: Final = f"/apis/{GROUP}/{VERSION}"

NAMESPACE, SERVICE = "kube-system", "virt-api"
HOST: Final = f"{SERVICE}.{NAMESPACE}.svc"
"""The name in the server's certificate. kube-apiserver expects the name of the Service."""

SERVICE_PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/services/{SERVICE}"
API_SERVICE_PATH: Final = f"/apis/apiregistration.k8s.io/v1/apiservices/{VERSION}.{GROUP}"


def service() -> dict[str, Any]:
    """Return the Service of virt-api. kube-apiserver sends requests for an aggregated API only to a Service."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVICE, "namespace": NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }


def api_service(port: int, ca: bytes) -> dict[str, Any]:
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{VERSION}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "version": VERSION,
            "service": {"namespace": NAMESPACE, "name": SERVICE, "port": port},
            "caBundle": base64.b64encode(ca).decode(),
            "groupPriorityMinimum": 1000,
            "versionPriority": 15,
        },
    }


def group() -> dict[str, Any]:
    version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    return {"kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": [version], "preferredVersion": version}


def resources(names: tuple[str, ...]) -> dict[str, Any]:
    """Return the discovery document. As virt-api's, the document has neither kinds nor verbs."""
    listed = [{"name": name, "singularName": "", "namespaced": True, "kind": "", "verbs": None} for name in names]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/{VERSION}",
        "resources": listed,
    }
