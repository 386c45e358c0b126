"""This module converts the bytes of a watch to events, and those of a list to pages. It does no I/O.

A watch is a stream of JSON objects, one on each line, which the network cuts at arbitrary bytes. Each object is decoded
directly into the type of the resource, without the JSON fields that the type does not have.
"""

from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from informers.errors import StatusError, TransportError, decode_status, from_status
from informers.meta import KubeObject, ObjectMeta, annotations_of
from informers.resource import TOO_DEEP, UNDECODABLE, WHY, Resource, cut_deep_values, decode_partial, decode_raw_page

T = TypeVar("T", bound=KubeObject)

INITIAL_EVENTS_END = "k8s.io/initial-events-end"

LINE_LIMIT = 64 * 1024 * 1024
"""Longest line of a watch in bytes, or it is an error. By default, etcd accepts only 1.5 MiB."""


class Applied(Struct, Generic[T], frozen=True):
    """An ADDED or MODIFIED event. `object` is the new state of the object."""

    object: T


class Deleted(Struct, Generic[T], frozen=True):
    """A DELETED event. `object` is the last state of the deleted object."""

    object: T


class Bookmark(Struct, frozen=True):
    """The watch has sent all events up to `version`. With `initial_end`, the streaming list is complete."""

    version: str
    initial_end: bool = False


class WatchError(Struct, frozen=True):
    """An ERROR event, which ends the watch. Its HTTP code is still 200, because the server has already sent it."""

    error: StatusError


class Undecodable(Struct, frozen=True):
    """An event that could not be decoded, because of `why`. `partial` is the object with only its metadata, or None."""

    why: str
    meta: ObjectMeta | None = None
    deleted: bool = False
    partial: Any = None


class PageRead(Struct, Generic[T], frozen=True):
    """A page of a list was read. `token` is the continue token of the next page, or "" if this page is the last one."""

    objects: tuple[T, ...]
    version: str
    token: str = ""
    undecodable: tuple[Undecodable, ...] = ()


Event: TypeAlias = Applied[T] | Deleted[T] | Bookmark | WatchError | Undecodable


class _Envelope(Struct, Generic[T], frozen=True):
    type: str
    object: T


class _RawEnvelope(Struct, frozen=True):
    type: str = ""
    object: Raw = Raw()


class _Identity(Struct, frozen=True, rename="camel"):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None


class _Identified(Struct, frozen=True):
    metadata: _Identity = _Identity()


_decode_raw = msgspec.json.Decoder(_RawEnvelope).decode
_decode_identified = msgspec.json.Decoder(_Identified).decode


class WatchParser(Generic[T]):
    """A parser for the events of one watch. It keeps the beginning of a line until the rest arrives."""

    def __init__(self, resource: Resource[T], *, line_limit: int = LINE_LIMIT) -> None:
        # This decoder decodes an event and its object in one pass. Two passes take about 50% longer.
        decoder: msgspec.json.Decoder[_Envelope[T]] = msgspec.json.Decoder(_Envelope[resource.type])  # type: ignore[name-defined]
        self._decode = decoder.decode
        self._resource = resource
        self._rest: list[bytes] = []
        self._rest_size = 0
        self._line_limit = line_limit

    def feed(self, chunk: bytes) -> list[Event[T]]:
        """Return the events that this chunk completes, in order. Raise TransportError if a line is too long."""
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
            why = WHY if isinstance(error, RecursionError) else str(error)
            return self._parse_slowly(cut_deep_values(line), why)
        match event.type:
            case "ADDED" | "MODIFIED":
                return Applied(event.object)
            case "DELETED":
                return Deleted(event.object)
            case kind:
                return self._parse_slowly(line, f"unknown event type {kind[:40]!r}")

    def _parse_slowly(self, line: bytes, why: str) -> Event[T]:
        """Parse a BOOKMARK or ERROR event, or one whose object cannot be decoded because of `why`."""
        try:
            event = _decode_raw(line)
            match event.type:
                case "BOOKMARK":
                    return _bookmark(event.object)
                case "ERROR":
                    return WatchError(from_status(decode_status(event.object)))
                case "ADDED" | "MODIFIED":
                    return undecodable(self._resource, event.object, why)
                case kind:
                    return Undecodable(why, identify(event.object), deleted=kind == "DELETED")
        except UNDECODABLE as error:
            return Undecodable(str(error))


def undecodable(resource: Resource[T], raw: Raw, why: str) -> Undecodable:
    """Return the event for an object that cannot be decoded. The argument `why` is the decoder's message."""
    return Undecodable(why, identify(raw), partial=resource.decode_metadata(raw, why))


def identify(raw: Raw) -> ObjectMeta | None:
    """Return the name, namespace, UID and version of an undecodable object, or None without a name or these."""
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


def _bookmark(raw: Raw) -> Bookmark:
    meta = decode_partial(raw).metadata
    return Bookmark(meta.resource_version, annotations_of(meta).get(INITIAL_EVENTS_END) == "true")


def decode_page(resource: Resource[T], body: bytes) -> PageRead[T]:
    """Decode a page of a list. Raise one of UNDECODABLE if the page is not a list."""
    try:
        page = resource.decode_page(body)
    except UNDECODABLE:
        return _decode_each(resource, body)
    return PageRead(page.items or (), page.metadata.resource_version or "", page.metadata.continue_ or "")


def _decode_each(resource: Resource[T], body: bytes) -> PageRead[T]:
    page = decode_raw_page(cut_deep_values(body))
    objects: list[T] = []
    rejected: list[Undecodable] = []
    for item in page.items or ():
        if TOO_DEEP in bytes(item):
            rejected.append(undecodable(resource, item, WHY))
            continue
        try:
            objects.append(resource.decode(item))
        except UNDECODABLE as error:
            rejected.append(undecodable(resource, item, str(error)))
    meta = page.metadata
    return PageRead(tuple(objects), meta.resource_version or "", meta.continue_ or "", tuple(rejected))
