"""The interface for reading and writing single objects. `ApiClient` implements it with requests to a server."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import Struct

from informers.errors import TransportError
from informers.meta import ObjectKey, ObjectMeta
from informers.resource import Resource, cut_deep_values, decode_partial

T = TypeVar("T")


class PatchType(StrEnum):
    """The media types of patches that the API server accepts for every resource, also for custom resources."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"


METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

LONGEST_PAGE: Final = 4 * 2**20
"""The maximum number of bytes in one page of metadata. A user can give one object about a megabyte of it."""


class ObjectClient(Protocol):
    """Requests for single objects and metadata. Each returns the body of the answer, or raises ApiError."""

    async def get(self, resource: Resource[Any], key: ObjectKey) -> bytes: ...

    async def list_metadata(
        self, resource: Resource[Any], namespace: str, *, limit: int, continue_: str = "", selector: str = ""
    ) -> bytes:
        """Return one page of a list of the metadata in the namespace. `continue_` is the last page's token or "".
        `selector` is a label selector, or "" for all objects. Raise AnswerTooLarge if it is longer than `LONGEST_PAGE`.
        """

    async def create(self, resource: Resource[Any], namespace: str, body: bytes, *, dry_run: bool = False) -> bytes: ...

    async def patch(
        self, resource: Resource[Any], key: ObjectKey, body: bytes, *, content_type: str, subresource: str = ""
    ) -> bytes: ...

    async def update(self, resource: Resource[Any], key: ObjectKey, body: bytes, *, subresource: str) -> bytes: ...

    async def delete(
        self, resource: Resource[Any], key: ObjectKey, *, uid: str, propagation: str, version: str = ""
    ) -> bytes: ...


class _Version(Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Versioned(Struct, frozen=True):
    metadata: _Version = _Version()


_decode_versioned = msgspec.json.Decoder(_Versioned).decode


def read_meta(answer: bytes) -> ObjectMeta:
    """Decode the metadata of an answer. Raise TransportError with `sent=True`: a proxy may have answered."""
    return _read(decode_partial, answer).metadata


def read_version(answer: bytes) -> str:
    """Decode only the resourceVersion, in a quarter of the time of `read_meta`, with the same error."""
    return _read(_decode_versioned, answer).metadata.resource_version


def _read(decode: Callable[[bytes], T], answer: bytes) -> T:
    try:
        try:
            return decode(answer)
        except RecursionError:
            return decode(cut_deep_values(answer))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TransportError(f"the answer is not an object: {error}", sent=True) from error
