"""The objects that register virt-api with kube-apiserver, and the service account of the simulator."""

import asyncio
import base64
import json
from pathlib import Path
from string import Template
from typing import Any, Final

import msgspec
import structlog
import yaml

from informers.errors import ApiError
from informers.http.client import ApiClient
from sandbox.admin import APPLY

Fields = dict[str, Any]

GROUP: Final = "subresources.kubevirt.io"
VERSION: Final = "v1"
ROOT: Final = f"/apis/{GROUP}/{VERSION}"

NAMESPACE, SERVICE, ACCOUNT = "kube-system", "virt-api", "kubevirt-controller"
USER: Final = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
"""The user name of the simulator. KubeVirt's webhooks give this user additional rights."""

HOST: Final = f"{SERVICE}.{NAMESPACE}.svc"
"""The name in the server's certificate. kube-apiserver expects the name of the Service."""

SOURCE: Final = Path(__file__).with_name("objects.yaml")


def objects(port: int = 0, ca: bytes = b"") -> dict[str, dict[str, Fields]]:
    """Return the objects in `objects.yaml`, by group and URL path, for a server with this port and certificate."""
    texts = {"group": GROUP, "version": VERSION, "namespace": NAMESPACE, "service": SERVICE, "account": ACCOUNT}
    document = Template(SOURCE.read_text()).substitute(texts, user=USER, port=port, ca=base64.b64encode(ca).decode())
    found: dict[str, dict[str, Fields]] = yaml.safe_load(document)
    return found


def group() -> Fields:
    version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    return {"kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": [version], "preferredVersion": version}


def resources(names: tuple[str, ...]) -> Fields:
    """Return the discovery document. As in virt-api, the document has neither kinds nor verbs."""
    listed = [{"name": name, "singularName": "", "namespaced": True, "kind": "", "verbs": None} for name in names]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}", "resources": listed}


def names_port(document: Fields, port: int) -> bool:
    if "webhooks" in document:
        return all(f":{port}/" in webhook["clientConfig"]["url"] for webhook in document["webhooks"])
    return bool(document["spec"]["service"]["port"] == port)


log = structlog.get_logger()

RETRY_S: Final = 1.0
TOKEN_LIFETIME_S: Final = 365 * 24 * 3600


async def apply(client: ApiClient, path: str, document: dict[str, Any]) -> None:
    """Apply an object with server-side apply. Repeat the request until kube-apiserver accepts the object."""
    parameters = {"fieldManager": "vmherd-sandbox", "force": "true"}
    while True:
        try:
            body = msgspec.json.encode(document)
            await client.request("PATCH", path, params=parameters, body=body, content_type=APPLY)
        except ApiError as error:
            log.warning("an object of the simulator is not accepted", path=path, why=str(error))
            await asyncio.sleep(RETRY_S)
        else:
            return


async def create_token(client: ApiClient) -> str:
    made = objects()["account"]
    for path, document in made.items():
        await apply(client, path, document)
    spec = {"expirationSeconds": TOKEN_LIFETIME_S}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = json.loads(await client.request("POST", f"{next(iter(made))}/token", body=json.dumps(body).encode()))
    return str(answer["status"]["token"])
