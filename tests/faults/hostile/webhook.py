"""A webhook that denies with the whole object in its message, warns with its secrets, hangs, or changes the object."""

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trustme

from sandbox.admin import Admin
from tests.controlplane.documents import vmi_document
from tests.controlplane.https import https_server
from tests.controlplane.waits import eventually
from tests.faults.hostile.cluster import Tenant

HANG_S = 4.0
PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


def _answer(path: str, review: Any) -> tuple[int, dict[str, Any]]:
    request = review["request"]
    response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    mode = path.strip("/").partition("?")[0]
    if mode == "deny":
        message = f"not like this:\n{json.dumps(request['object'], indent=1)}"
        response |= {"allowed": False, "status": {"code": 403, "message": message}}
    elif mode == "warn":
        lines = json.dumps(request["object"], indent=1).splitlines()
        response |= {"warnings": [f"old: {line.strip()}" for line in lines if "s3cr3t" in line] or ["old: nothing"]}
    elif mode == "hang":
        time.sleep(HANG_S)
    elif mode == "mutate":
        steps = [
            {"op": "add", "path": "/metadata/labels/injected", "value": "yes"},
            {"op": "replace", "path": "/metadata/labels/app", "value": "changed"},
        ]
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(steps).encode()).decode()}
    return 200, {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


class Webhook:
    """The running webhook.

    `calls` registers the webhook for create requests in a tenant's namespace while a block runs.
    """

    def __init__(self, address: str, ca: bytes) -> None:
        self._address = address
        self._ca = base64.b64encode(ca).decode()

    @contextmanager
    def calls(self, tenant: Tenant, mode: str) -> Iterator[None]:
        """Call the webhook for each create request for a VM or VMI in the tenant's namespace."""
        admin = Admin(tenant.plane.kubeconfig)
        resources = ["virtualmachineinstances", "virtualmachines"]
        webhook = {
            "name": f"{mode}.hostile.vmherd.dev",
            "clientConfig": {"url": f"{self._address}/{mode}", "caBundle": self._ca},
            "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": resources}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": tenant.name}},
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "timeoutSeconds": 2,
            "admissionReviewVersions": ["v1"],
        }
        name = f"{tenant.name}-{mode}"
        kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
        body = json.dumps({**kind, "metadata": {"name": name}, "webhooks": [webhook]}).encode()
        admin.send("POST", PATH, body, "application/json")
        eventually(lambda: self._is_called(tenant, mode), what="the webhook is in force")
        try:
            yield
        finally:
            admin.send("DELETE", f"{PATH}/{name}")

    @staticmethod
    def _is_called(tenant: Tenant, mode: str) -> bool:
        probe = vmi_document("probe", labels={"app": "probe"})
        done = tenant.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=probe, check=False)
        signs = {"mutate": '"injected"' in done.stdout, "warn": "Warning: old:" in done.stderr}
        return signs.get(mode, done.returncode != 0)


@contextmanager
def running_webhook() -> Iterator[Webhook]:
    authority = trustme.CA()
    with https_server(authority, "127.0.0.1", _answer) as port:
        yield Webhook(f"https://127.0.0.1:{port}", authority.cert_pem.bytes())
