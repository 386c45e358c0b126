"""This module creates the service account of the simulator.

The account has the name of virt-controller's account. KubeVirt's webhooks treat writes of KubeVirt and of users
differently. Users of a sandbox have the administrator's certificate. So the simulator needs another account.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from informers.http.client import ApiClient
from sandbox.virt_api.applying import apply
from sandbox.virt_api.registration import ACCOUNT, NAMESPACE

ACCOUNT_PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}"
BINDING: Final = "vmherd-sandbox-kubevirt-controller"
BINDING_PATH: Final = f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{BINDING}"
TOKEN_LIFETIME_S: Final = 365 * 24 * 3600


async def create_token(client: ApiClient) -> str:
    """Create the account with all permissions, and return a token of the account."""
    await apply(client, ACCOUNT_PATH, _account())
    await apply(client, BINDING_PATH, _binding())
    spec = {"expirationSeconds": TOKEN_LIFETIME_S}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = json.loads(await client.request("POST", f"{ACCOUNT_PATH}/token", body=json.dumps(body).encode()))
    return str(answer["status"]["token"])


@contextmanager
def kubeconfig_with(token: str, kubeconfig: str | os.PathLike[str]) -> Iterator[Path]:
    """Write a kubeconfig for the same cluster with this token, and remove the file when the block ends."""
    config = yaml.safe_load(Path(kubeconfig).read_text())
    current = next(each for each in config["contexts"] if each["name"] == config["current-context"])
    current["context"]["user"] = ACCOUNT
    config["users"] = [{"name": ACCOUNT, "user": {"token": token}}]
    with tempfile.TemporaryDirectory(prefix="vmherd-simulator-") as directory:
        path = Path(directory) / "kubeconfig"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            yaml.safe_dump(config, file)
        yield path


def _account() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": NAMESPACE}}


def _binding() -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": BINDING},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
    }
