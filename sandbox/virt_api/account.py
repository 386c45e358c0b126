"""This module applies objects to the cluster, and creates the service account of the simulator."""

import asyncio
import json
from typing import Any, Final

import msgspec
import structlog

from informers.errors import ApiError
from informers.http.client import ApiClient
from sandbox.admin import APPLY
from sandbox.virt_api.registration import objects

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
