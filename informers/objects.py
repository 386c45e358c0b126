"""The API as writers of objects see it: four requests, two sorts of patches, and the metadata in an answer.

The API client is the one implementation that talks to a server.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from informers.errors import TransportError
from informers.meta import ObjectKey, ObjectMeta
from informers.resource import Resource


class PatchType(StrEnum):
    """The media types in which the API server takes patches of all resources, custom ones included."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"


class ObjectClient(Protocol):
    """Each returns the answer's bytes, and raises ApiError."""

    async def get(self, resource: Resource[Any], key: ObjectKey) -> bytes: ...

    async def create(self, resource: Resource[Any], namespace: str, body: bytes) -> bytes: ...

    async def patch(
        self, resource: Resource[Any], key: ObjectKey, body: bytes, *, content_type: str, subresource: str = ""
    ) -> bytes: ...

    async def delete(
        self, resource: Resource[Any], key: ObjectKey, *, uid: str, propagation: str, version: str = ""
    ) -> bytes: ...


class _Object(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


_decode = msgspec.json.Decoder(_Object).decode


def read_meta(answer: bytes) -> ObjectMeta:
    """The metadata of the object in an answer.

    Raises TransportError for what is no object: something in between answered, and nobody knows what the server did.
    """
    try:
        return _decode(answer).metadata
    except msgspec.DecodeError as error:
        raise TransportError(f"the answer cannot be read: {error}", sent=True) from error
