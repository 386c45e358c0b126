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

from informers.errors import Status, StatusError, from_status
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
    """An event that could not be decoded. `meta` says of which object, as far as that could be found out."""

    why: str
    meta: ObjectMeta | None = None


Event: TypeAlias = Applied[T] | Deleted[T] | Bookmark | WatchError | Undecodable


class _Line(Struct, frozen=True):
    type: str = ""
    object: Raw = Raw()


class _BookmarkMeta(Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    annotations: Mapping[str, str] | None = None


class _BookmarkObject(Struct, frozen=True):
    metadata: _BookmarkMeta = _BookmarkMeta()


class _Named(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


_decode_line = msgspec.json.Decoder(_Line).decode
_decode_bookmark = msgspec.json.Decoder(_BookmarkObject).decode
_decode_status = msgspec.json.Decoder(Status).decode
_decode_named = msgspec.json.Decoder(_Named).decode


class WatchParser(Generic[T]):
    """One for each stream: it holds the piece of a line that has not ended yet."""

    def __init__(self, resource: Resource[T]) -> None:
        self._decode = resource.decode
        self._rest: list[bytes] = []
        self._rest_size = 0

    def feed(self, chunk: bytes) -> list[Event[T]]:
        """The events that this chunk completes, in order. Raises ValueError when a line exceeds LINE_LIMIT."""
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
        if self._rest_size > LINE_LIMIT:
            raise ValueError(f"a line of a watch has more than {LINE_LIMIT} bytes")

    def _parse(self, line: bytes) -> Event[T]:
        try:
            event = _decode_line(line)
            match event.type:
                case "ADDED" | "MODIFIED":
                    return Applied(self._decode(event.object))
                case "DELETED":
                    return Deleted(self._decode(event.object))
                case "BOOKMARK":
                    return _bookmark(event.object)
                case "ERROR":
                    return WatchError(from_status(_decode_status(event.object)))
                case _:
                    return Undecodable(f"unknown event type {event.type[:40]!r}")
        except msgspec.DecodeError as error:
            return Undecodable(str(error), _meta_of(line))


def meta_of_object(raw: Raw) -> ObjectMeta | None:
    """Which object it is, where that much can be read."""
    try:
        return _decode_named(raw).metadata
    except msgspec.DecodeError:
        return None


def _meta_of(line: bytes) -> ObjectMeta | None:
    try:
        return meta_of_object(_decode_line(line).object)
    except msgspec.DecodeError:
        return None


def _bookmark(raw: Raw) -> Bookmark:
    meta = _decode_bookmark(raw).metadata
    return Bookmark(meta.resource_version, (meta.annotations or {}).get(INITIAL_EVENTS_END) == "true")
