"""The wire format of a watch, without the wire: bytes in, events out (sans-I/O).

A watch is a stream of JSON objects, one a line, cut into chunks wherever the network likes. `WatchParser.feed` takes
chunks and returns the events that are complete. Objects are decoded straight into the slim type of the resource; what
the type does not name is skipped and never built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from informers.errors import Status, StatusError, TransportError, from_status
from informers.meta import KubeObject, ObjectMeta
from informers.resource import Resource

T = TypeVar("T", bound=KubeObject)

INITIAL_EVENTS_END = "k8s.io/initial-events-end"

LINE_LIMIT = 64 * 1024 * 1024
"""etcd takes 1.5 MiB for an object by default; whatever is far above that is no Kubernetes watch."""


class Applied(Struct, Generic[T], frozen=True):
    """An object as it is now: added or modified, which nobody needs to know."""

    object: T


class Deleted(Struct, Generic[T], frozen=True):
    """An object's last state."""

    object: T


class Bookmark(Struct, frozen=True):
    """Nothing happened up to this version. `initial_end`: a streaming list is complete with it."""

    version: str
    initial_end: bool = False


class WatchError(Struct, frozen=True):
    """The server ended the watch with an ERROR event, inside an answer that began with HTTP 200."""

    error: StatusError


class Undecodable(Struct, frozen=True):
    """An event that could not be decoded. `meta` says of which object, as far as that could be found out.

    `deleted` tells that it is about the end of that object, which is all that there is to know of it.
    """

    why: str
    meta: ObjectMeta | None = None
    deleted: bool = False


Event: TypeAlias = Applied[T] | Deleted[T] | Bookmark | WatchError | Undecodable


class _Envelope(Struct, Generic[T], frozen=True):
    type: str
    object: T


class _RawEnvelope(Struct, frozen=True):
    type: str = ""
    object: Raw = Raw()


class _BookmarkMeta(Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    annotations: Mapping[str, str] | None = None


class _BookmarkObject(Struct, frozen=True):
    metadata: _BookmarkMeta = _BookmarkMeta()


class _Identity(Struct, frozen=True, rename="camel"):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None


class _Identified(Struct, frozen=True):
    metadata: _Identity = _Identity()


UNDECODABLE = (msgspec.DecodeError, RecursionError)
"""What decoding raises: a field of another type, broken JSON, or JSON nested deeper than any object should be."""

_decode_raw = msgspec.json.Decoder(_RawEnvelope).decode
_decode_bookmark = msgspec.json.Decoder(_BookmarkObject).decode
_decode_status = msgspec.json.Decoder(Status).decode
_decode_identified = msgspec.json.Decoder(_Identified).decode


class WatchParser(Generic[T]):
    """One for each stream: it holds the piece of a line that has not ended yet."""

    def __init__(self, resource: Resource[T], *, line_limit: int = LINE_LIMIT) -> None:
        # One pass over the line: reading the envelope first and its object afterwards takes half as long again.
        decoder: msgspec.json.Decoder[_Envelope[T]] = msgspec.json.Decoder(_Envelope[resource.type])  # type: ignore[name-defined]
        self._decode = decoder.decode
        self._rest: list[bytes] = []
        self._rest_size = 0
        self._line_limit = line_limit

    def feed(self, chunk: bytes) -> list[Event[T]]:
        """The events that this chunk completes, in order. Raises TransportError when a line exceeds the limit."""
        head, newline, tail = chunk.partition(b"\n")
        if not newline:
            self._keep(head)
            return []
        if self._rest:
            head = b"".join((*self._rest, head))
            self._rest, self._rest_size = [], 0
        *lines, rest = tail.split(b"\n")
        if rest:
            self._keep(rest)
        return [self._parse(line) for line in (head, *lines) if line.strip()]

    def _keep(self, piece: bytes) -> None:
        self._rest.append(piece)
        self._rest_size += len(piece)
        if self._rest_size > self._line_limit:
            raise TransportError(f"a line of the watch has more than {self._line_limit} bytes", sent=True)

    def _parse(self, line: bytes) -> Event[T]:
        try:
            event = self._decode(line)
        except UNDECODABLE as error:
            return _parse_slowly(line, str(error))
        match event.type:
            case "ADDED" | "MODIFIED":
                return Applied(event.object)
            case "DELETED":
                return Deleted(event.object)
            case kind:
                return _parse_slowly(line, f"unknown event type {kind[:40]!r}")


def identify(raw: Raw) -> ObjectMeta | None:
    """Which object it is, where that much can be read of one that does not decode."""
    try:
        found = _decode_identified(raw).metadata
    except UNDECODABLE:
        return None
    if not found.name:
        return None
    return ObjectMeta(
        name=found.name,
        namespace=found.namespace or "",
        uid=found.uid or "",
        resource_version=found.resource_version or "",
    )


def _parse_slowly(line: bytes, why: str) -> Bookmark | WatchError | Undecodable:
    """What is about no object, or about one that does not decode."""
    try:
        event = _decode_raw(line)
        match event.type:
            case "BOOKMARK":
                return _bookmark(event.object)
            case "ERROR":
                return WatchError(from_status(_decode_status(event.object)))
            case kind:
                return Undecodable(why, identify(event.object), deleted=kind == "DELETED")
    except UNDECODABLE as error:
        return Undecodable(str(error))


def _bookmark(raw: Raw) -> Bookmark:
    meta = _decode_bookmark(raw).metadata
    return Bookmark(meta.resource_version, (meta.annotations or {}).get(INITIAL_EVENTS_END) == "true")
