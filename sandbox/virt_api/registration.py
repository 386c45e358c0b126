"""This module builds the objects that register virt-api with kube-apiserver. All functions are pure."""

import base64
from typing import Any, Final

Fields = dict[str, Any]

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
    bundle = base64.b64encode(ca).decode()

    def webhook(path: str, group: str, resource: str, *operations: str, name: str = "", **fields: Any) -> Fields:
        rule = {"apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": [resource]}
        return {
            "name": name or f"{path}.{resource}.kubevirt.io",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": 10,
            "rules": [rule],
            "clientConfig": {"url": f"https://127.0.0.1:{port}/{path}", "caBundle": bundle},
            **fields,
        }

    writes = "CREATE", "UPDATE"
    by_user = _only_if("not-kubevirt", f"request.operation == 'CREATE' || request.userInfo.username != '{USER}'")
    # Only evictions of virt-launcher Pods are checked.
    of_launchers = _only_if("only-vms", 'object.metadata.name.startsWith("virt-launcher")')
    evicting = {**of_launchers, "name": "virt-launcher-eviction-interceptor.kubevirt.io", "sideEffects": "NoneOnDryRun"}
    mutating = [
        webhook("mutate", "kubevirt.io", "virtualmachines", *writes),
        webhook("mutate", "kubevirt.io", "virtualmachineinstances", *writes, **by_user),
    ]
    validating = [
        webhook("validate", "kubevirt.io", "virtualmachines", *writes),
        webhook("validate", "kubevirt.io", "virtualmachineinstances", *writes, **by_user),
        webhook("validate", "kubevirt.io", "virtualmachineinstancereplicasets", *writes),
        webhook("validate", "pool.kubevirt.io", "virtualmachinepools", *writes),
        # CDI does not check new DataVolumes.
        webhook("validate", "cdi.kubevirt.io", "datavolumes", "UPDATE", name="datavolume-validate.cdi.kubevirt.io"),
        webhook("evict", "", "pods/eviction", "*", **evicting),
    ]
    return dict(
        (
            _configuration("MutatingWebhookConfiguration", "virt-api-mutator", mutating),
            _configuration("ValidatingWebhookConfiguration", "virt-api-validator", validating),
        )
    )


def _only_if(name: str, expression: str) -> Fields:
    """Return the condition of a webhook: the API server sends it only the requests for which it is true."""
    return {"matchConditions": [{"name": name, "expression": expression}]}


def _configuration(kind: str, name: str, webhooks: list[Fields]) -> tuple[str, Fields]:
    """Return the path of a webhook configuration, and the configuration."""
    document = {"apiVersion": _ADMISSION, "kind": kind, "metadata": {"name": name}, "webhooks": webhooks}
    return f"/apis/{_ADMISSION}/{kind.lower()}s/{name}", document


def names_port(document: dict[str, Any], port: int) -> bool:
    """Return True if this webhook configuration or APIService contains this port."""
    if "webhooks" in document:
        return all(f":{port}/" in webhook["clientConfig"]["url"] for webhook in document["webhooks"])
    return bool(document["spec"]["service"]["port"] == port)
