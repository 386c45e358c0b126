"""This module builds the objects that register virt-api with kube-apiserver. All functions are pure."""

from __future__ import annotations

import base64
from typing import Any, Final, NamedTuple

GROUP: Final = "subresources.kubevirt.io"
VERSION: Final = "v1"
ROOT: Final = f"/apis/{GROUP}/{VERSION}"

NAMESPACE, SERVICE, ACCOUNT = "kube-system", "virt-api", "kubevirt-controller"
USER: Final = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
"""The user name of the simulator. KubeVirt's webhooks give this user additional rights."""

HOST: Final = f"{SERVICE}.{NAMESPACE}.svc"
"""The name in the server's certificate. kube-apiserver expects the name of the Service."""

SERVICE_PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/services/{SERVICE}"
API_SERVICE_PATH: Final = f"/apis/apiregistration.k8s.io/v1/apiservices/{VERSION}.{GROUP}"
_ADMISSION: Final = "admissionregistration.k8s.io/v1"


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
    """Return the discovery document. As in virt-api, the document has neither kinds nor verbs."""
    listed = [{"name": name, "singularName": "", "namespaced": True, "kind": "", "verbs": None} for name in names]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/{VERSION}",
        "resources": listed,
    }


def webhooks(port: int, ca: bytes) -> dict[str, dict[str, Any]]:
    """Return the webhook configurations by path: first the mutating webhook, then the validating webhook.

    KubeVirt's own changes of VMIs are not sent to the webhooks, because they are always accepted.
    """
    server = _Server(port, ca)
    by_user = f"request.operation == 'CREATE' || request.userInfo.username != '{USER}'"
    only_by_user = {"matchConditions": [{"name": "not-kubevirt", "expression": by_user}]}
    mutating = [
        server.webhook("mutate", "kubevirt.io", "virtualmachines"),
        server.webhook("mutate", "kubevirt.io", "virtualmachineinstances") | only_by_user,
    ]
    validating = [
        server.webhook("validate", "kubevirt.io", "virtualmachines"),
        server.webhook("validate", "kubevirt.io", "virtualmachineinstances") | only_by_user,
        server.webhook("validate", "kubevirt.io", "virtualmachineinstancereplicasets"),
        server.webhook("validate", "pool.kubevirt.io", "virtualmachinepools"),
        server.data_volume_webhook(),
        server.eviction_webhook(),
    ]
    return {
        f"/apis/{_ADMISSION}/mutatingwebhookconfigurations/virt-api-mutator": _configuration(
            "MutatingWebhookConfiguration", "virt-api-mutator", mutating
        ),
        f"/apis/{_ADMISSION}/validatingwebhookconfigurations/virt-api-validator": _configuration(
            "ValidatingWebhookConfiguration", "virt-api-validator", validating
        ),
    }


class _Server(NamedTuple):
    """The port of the server on loopback, and the CA of its certificate."""

    port: int
    ca: bytes

    def webhook(self, path: str, group: str, resource: str) -> dict[str, Any]:
        return {
            "name": f"{path}.{resource}.kubevirt.io",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": 10,
            "rules": [
                {
                    "apiGroups": [group],
                    "apiVersions": ["*"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": [resource],
                }
            ],
            "clientConfig": {
                "url": f"https://127.0.0.1:{self.port}/{path}",
                "caBundle": base64.b64encode(self.ca).decode(),
            },
        }

    def data_volume_webhook(self) -> dict[str, Any]:
        """Return CDI's webhook for changed DataVolumes. New DataVolumes are not checked."""
        webhook = self.webhook("validate", "cdi.kubevirt.io", "datavolumes")
        [rule] = webhook["rules"]
        return webhook | {"name": "datavolume-validate.cdi.kubevirt.io", "rules": [rule | {"operations": ["UPDATE"]}]}

    def eviction_webhook(self) -> dict[str, Any]:
        """Return the webhook for evictions of virt-launcher Pods."""
        webhook = self.webhook("evict", "", "pods/eviction")
        is_launcher = {"name": "only-vms", "expression": 'object.metadata.name.startsWith("virt-launcher")'}
        return webhook | {
            "name": "virt-launcher-eviction-interceptor.kubevirt.io",
            "sideEffects": "NoneOnDryRun",
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods/eviction"]}],
            "matchConditions": [is_launcher],
        }


def _configuration(kind: str, name: str, webhooks: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": _ADMISSION, "kind": kind, "metadata": {"name": name}, "webhooks": webhooks}


def names_port(document: dict[str, Any], port: int) -> bool:
    """Return True if this webhook configuration or APIService contains this port."""
    if "webhooks" in document:
        return all(f":{port}/" in webhook["clientConfig"]["url"] for webhook in document["webhooks"])
    return bool(document["spec"]["service"]["port"] == port)
