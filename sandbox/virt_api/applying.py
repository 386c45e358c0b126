"""This module applies the objects that virt-api needs in the cluster."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import structlog

from informers.errors import ApiError
from informers.http.client import ApiClient

log = structlog.get_logger()

RETRY_S = 1.0
"""The seconds between two attempts to apply an object."""

APPLY = "application/apply-patch+yaml"
FIELD_MANAGER = {"fieldManager": "vmherd-sandbox", "force": "true"}


async def apply(client: ApiClient, path: str, document: dict[str, Any]) -> None:
    """Apply an object with server-side apply. Repeat the request until kube-apiserver accepts the object."""
    body = json.dumps(document).encode()
    while True:
        try:
            await client.request("PATCH", path, params=FIELD_MANAGER, body=body, content_type=APPLY)
        except ApiError as error:
            log.warning("an object of virt-api is not accepted", path=path, why=str(error))
            await asyncio.sleep(RETRY_S)
        else:
            return
