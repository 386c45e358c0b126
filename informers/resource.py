"""This module describes a resource of the API with its URL path, its scope and the decoders of its objects."""

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, Generic, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct, field

from informers.meta import KubeObject, ObjectMeta

DEEPEST: Final = 300
"""The most levels that `cut_deep_values` keeps, below any limit of the decoder, which the call stack decides."""

TOO_DEEP: Final = b'"vmherd: nested too deeply"'
"""The JSON text that replaces a value below level `DEEPEST`. No real value is equal to this text."""

WHY: Final = "the object is nested too deeply"

_TOKENS: Final = re.compile(rb'"[^"\\]*+(?:\\.?[^"\\]*+)*+"?|[\[{]|[\]}]', re.DOTALL)
_OPENING: Final = b"[{"
_CLOSING: Final = b"]}"


def cut_deep_values(document: bytes) -> bytes:
    """Return the document with `TOO_DEEP` in place of each object and list below level `DEEPEST`.

    The API server stores up to 10,000 levels. The decoder fails at about 1,000, so one such object would make a whole
    list undecodable. Ten megabytes need about 0.1 s. The document need not be valid JSON.
    """
    kept: list[bytes] = []
    level, copied, cut_from = 0, 0, 0
    for token in _TOKENS.finditer(document):
        char = document[token.start()]
        if char in _OPENING:
            level += 1
            if level == DEEPEST + 1:
                cut_from = token.start()
        elif char in _CLOSING:
            level -= 1
            if level == DEEPEST:
                kept += [document[copied:cut_from], TOO_DEEP]
                copied = token.end()
    return b"".join((*kept, document[copied:])) if kept else document


Item = TypeVar("Item")
T = TypeVar("T", bound=KubeObject)

Wire: TypeAlias = bytes | msgspec.Raw

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions of the decoder: invalid JSON or a wrong type, a text that is not UTF-8, and too deep JSON."""


class ListMeta(Struct, frozen=True):
    resource_version: str | None = field(default=None, name="resourceVersion")
    continue_: str | None = field(default=None, name="continue")
    remaining: int | None = field(default=None, name="remainingItemCount")


class Page(Struct, Generic[Item], frozen=True):
    """A short list has only one page. `items` is None if the server sent `null`. Such a page is empty."""

    metadata: ListMeta = ListMeta()
    items: tuple[Item, ...] | None = None


class PartialObject(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class Resource(Generic[T]):
    """One resource of the API, such as `Resource(VMI, group="kubevirt.io", version="v1", plural=..., kind=...)`.

    `type_` is a frozen Struct with only the fields that the program reads. Create each resource once, as a constant:
    two `Resource` objects are never equal.

    An object with an unreadable field is skipped. If `partial` is True, it is decoded with only its metadata instead,
    so readers know its labels, its owner and its deletion. The type then needs a field `undecodable` for the decoder's
    message, or "".
    """

    def __init__(
        self,
        type_: type[T],
        *,
        group: str,
        version: str,
        plural: str,
        kind: str,
        namespaced: bool = True,
        partial: bool = False,
    ) -> None:
        self.type = type_
        self.group = group
        self.version = version
        self.plural = plural
        self.kind = kind
        self.namespaced = namespaced
        self._partial = partial

    def __repr__(self) -> str:
        return f"Resource({self.name})"

    @property
    def name(self) -> str:
        """The name of the resource in kubectl and RBAC: `plural.group`, or only `plural` for the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_path(self) -> str:
        """The URL path of the group and version, which answers GET with the served resources in it."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of all objects, of the object `name`, or of its subresource. The namespace "" means all."""
        parts = [self.group_path]
        if namespace and self.namespaced:
            parts.append(f"namespaces/{quote(namespace, safe='')}")
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part]
        return "/".join(parts)

    @cached_property
    def decode(self) -> Callable[[Wire], T]:
        """Decode the JSON of one object. Raise msgspec.DecodeError if the object does not match the type."""
        return msgspec.json.Decoder(self.type).decode

    def decode_metadata(self, raw: msgspec.Raw, why: str) -> T | None:
        """Return the object with only its metadata and the message `why`, or None if not `partial` or unreadable."""
        try:
            metadata = decode_partial(raw).metadata if self._partial else ObjectMeta()
        except UNDECODABLE:
            return None
        type_: Any = self.type
        return type_(metadata=metadata, undecodable=why) if metadata.name else None

    @cached_property
    def decode_page(self) -> Callable[[Wire], Page[T]]:
        """Decode a page of a list. Raise msgspec.DecodeError if any object of the page does not match the type."""
        decoder: msgspec.json.Decoder[Page[T]] = msgspec.json.Decoder(Page[self.type])  # type: ignore[name-defined]
        return decoder.decode


decode_partial: Callable[[Wire], PartialObject] = msgspec.json.Decoder(PartialObject).decode
decode_raw_page: Callable[[Wire], Page[msgspec.Raw]] = msgspec.json.Decoder(Page[msgspec.Raw]).decode
