"""Asks the API server whether KubeVirt is installed, and when virt-controller last wrote a status.

Every user may ask whether a kind is served, but only some may read KubeVirt objects. Other failures raise ApiError or
msgspec.DecodeError.
"""

from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import TypeAlias

import msgspec
from msgspec import Struct

from controller.access import Permission, missing_permissions
from controller.runtime.execute.requests import REQUEST_TIMEOUT_S, Requests
from controller.takeover.virt_controller import DEPLOYMENTS, KUBEVIRTS, VIRT_CONTROLLER, Deployment, KubeVirt
from informers.errors import Forbidden, NotFound
from informers.meta import ObjectKey, ObjectMeta
from informers.resource import decode_raw_page

PAGE = "500"


class Absent(Struct, frozen=True):
    """KubeVirt is not installed: the cluster does not serve the kind KubeVirt, or has no object of this kind."""


class Hidden(Struct, frozen=True):
    """The kind KubeVirt is served, but its objects may not be listed: `why` is the message of the API server."""

    why: str


class Found(Struct, frozen=True):
    kubevirts: tuple[KubeVirt, ...]


Installation: TypeAlias = Absent | Hidden | Found


class Write(Struct, frozen=True):
    key: ObjectKey
    at: datetime


class _Served(Struct, frozen=True):
    name: str = ""


class _Discovery(Struct, frozen=True):
    resources: tuple[_Served, ...] | None = None


class _Fields(Struct, frozen=True):
    manager: str = ""
    subresource: str = ""
    time: datetime | None = None


class _Managed(Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    managed_fields: tuple[_Fields, ...] | None = None


class _Written(Struct, frozen=True):
    metadata: _Managed = _Managed()


_decode_discovery = msgspec.json.Decoder(_Discovery).decode
_decode_written = msgspec.json.Decoder(_Written).decode


def read_writes(answer: bytes) -> Iterator[tuple[str, datetime]]:
    for fields in _decode_written(answer).metadata.managed_fields or ():
        if fields.time is not None:
            yield fields.manager, fields.time


async def raw_items(client: Requests, path: str, selector: str = "") -> AsyncIterator[msgspec.Raw]:
    """Yield the JSON of each object of the collection with this URL path, or nothing if it is not served."""
    params = {"limit": PAGE, **({"labelSelector": selector} if selector else {})}
    while True:
        try:
            page = decode_raw_page(await client.request("GET", path, params=params))
        except NotFound:
            return
        for item in page.items or ():
            yield item
        if not page.metadata.continue_:
            return
        params = {**params, "continue": page.metadata.continue_}


async def is_served(client: Requests, group_path: str, plural: str) -> bool:
    try:
        answer = await client.request("GET", group_path, timeout_s=REQUEST_TIMEOUT_S)
    except NotFound:
        return False
    return any(resource.name == plural for resource in _decode_discovery(answer).resources or ())


async def find_kubevirt(client: Requests, namespace: str = "") -> Installation:
    """Return whether KubeVirt is installed in this namespace. The namespace "" means any namespace."""
    try:
        if not await is_served(client, KUBEVIRTS.group_path, KUBEVIRTS.plural):
            return Absent()
        page = KUBEVIRTS.decode_page(
            await client.request("GET", KUBEVIRTS.path(namespace), timeout_s=REQUEST_TIMEOUT_S)
        )
    except NotFound:
        return Absent()
    except Forbidden as error:
        return Hidden(str(error))
    return Found(page.items) if page.items else Absent()


async def find_visible_kubevirt(client: Requests, namespace: str = "") -> Installation:
    """Return the same as `find_kubevirt`. The permission is asked for first, so no request is refused."""
    if not await is_served(client, KUBEVIRTS.group_path, KUBEVIRTS.plural):
        return Absent()
    if await missing_permissions(client, (Permission(KUBEVIRTS.group, KUBEVIRTS.plural, "list", namespace),)):
        return Hidden(f"no permission to list {KUBEVIRTS.name}")
    return await find_kubevirt(client, namespace)


async def get_virt_controller(client: Requests, kubevirt: ObjectMeta) -> Deployment:
    path = DEPLOYMENTS.path(kubevirt.namespace, VIRT_CONTROLLER)
    return DEPLOYMENTS.decode(await client.request("GET", path, timeout_s=REQUEST_TIMEOUT_S))


async def latest_write(client: Requests, path: str) -> Write | None:
    """Return the last status write by virt-controller in a collection with this URL path, or None."""
    writes = [
        Write(ObjectKey(meta.namespace, meta.name), fields.time)
        async for raw in raw_items(client, path)
        for meta in (_decode_written(raw).metadata,)
        for fields in meta.managed_fields or ()
        if fields.manager == VIRT_CONTROLLER and fields.subresource == "status" and fields.time is not None
    ]
    return max(writes, key=lambda write: write.at, default=None)
