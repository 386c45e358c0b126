"""This module applies objects to the cluster, and creates the service account of the simulator.

The account has the name of virt-controller's account. KubeVirt's webhooks treat writes of KubeVirt and of users
differently. Users of a sandbox have the administrator's certificate. So the simulator needs another account.
"""

import asyncio
import json
from typing import Any, Final

import structlog

from informers.errors import ApiError
from informers.http.client import ApiClient
from sandbox.admin import APPLY
from sandbox.virt_api.registration import ACCOUNT, NAMESPACE

log = structlog.get_logger()

RETRY_S: Final = 1.0
ACCOUNT_PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}"
BINDING: Final = "vmherd-sandbox-kubevirt-controller"
BINDING_PATH: Final = f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{BINDING}"
TOKEN_LIFETIME_S: Final = 365 * 24 * 3600


async def apply(client: ApiClient, path: str, document: dict[str, Any]) -> None:
    """Apply an object with server-side apply. Repeat the request until kube-apiserver accepts the object."""
    parameters = {"fieldManager": "vmherd-sandbox", "force": "true"}
    while True:
        try:
            body = json.dumps(document).encode()
            await client.request("PATCH", path, params=parameters, body=body, content_type=APPLY)
        except ApiError as error:
            log.warning("an object of virt-api is not accepted", path=path, why=str(error))
            await asyncio.sleep(RETRY_S)
        else:
            return


async def create_token(client: ApiClient) -> str:
    """Create the account with all permissions, and return a token of the account."""
    meta = {"name": ACCOUNT, "namespace": NAMESPACE}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": BINDING},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", **meta}],
    }
    await apply(client, ACCOUNT_PATH, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    await apply(client, BINDING_PATH, binding)
    spec = {"expirationSeconds": TOKEN_LIFETIME_S}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = json.loads(await client.request("POST", f"{ACCOUNT_PATH}/token", body=json.dumps(body).encode()))
    return str(answer["status"]["token"])
