"""The description of a resource of the API: its URL path, its scope and its decoders."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Generic, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from informers.meta import KubeObject

T = TypeVar("T", bound=KubeObject)

Wire: TypeAlias = bytes | msgspec.Raw


class ListMeta(Struct, frozen=True, rename={"resource_version": "resourceVersion", "continue_": "continue"}):
    resource_version: str | None = None
    continue_: str | None = None


class Page(Struct, Generic[T], frozen=True):
    """A page of a list, or a whole short list. `items` is None if the server sent `null`."""

    metadata: ListMeta = ListMeta()
    items: tuple[T, ...] | None = None


class RawPage(Struct, frozen=True):
    """A page of a list whose items are not decoded yet. It is used if an object of the page cannot be decoded."""

    metadata: ListMeta = ListMeta()
    items: tuple[msgspec.Raw, ...] | None = None


class Resource(Generic[T]):
    """One resource of the API: `Resource(VMI, group="kubevirt.io", version="v1", plural=..., kind=...)`.

    `type_` is a frozen Struct with only the fields that the program reads. Two resources are equal only if they are the
    same Python object, so create each resource once, as a constant.
    """

    def __init__(
        self, type_: type[T], *, group: str, version: str, plural: str, kind: str, namespaced: bool = True
    ) -> None:
        self.type = type_
        self.group = group
        self.version = version
        self.plural = plural
        self.kind = kind
        self.namespaced = namespaced

    def __repr__(self) -> str:
        return f"Resource({self.name})"

    @property
    def name(self) -> str:
        """`plural.group`, as in kubectl and in RBAC messages. Only `plural` if the resource is in the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_path(self) -> str:
        """The URL path of the group and version. Its discovery document lists the resource if the server serves it."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of a collection, of an object, or of a subresource of an object.

        For a namespaced resource, an empty namespace stands for all namespaces.
        """
        parts = [self.group_path]
        if namespace and self.namespaced:
            parts.append(f"namespaces/{quote(namespace, safe='')}")
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part]
        return "/".join(parts)

    @cached_property
    def decode(self) -> Callable[[Wire], T]:
        """Decode the JSON of one object. Raises msgspec.DecodeError or its subclass ValidationError."""
        return msgspec.json.Decoder(self.type).decode

    @cached_property
    def decode_page(self) -> Callable[[Wire], Page[T]]:
        """Decode a page of a list. Raises msgspec.DecodeError if any item does not match the type."""
        decoder: msgspec.json.Decoder[Page[T]] = msgspec.json.Decoder(Page[self.type])  # type: ignore[name-defined]
        return decoder.decode


decode_raw_page: Callable[[Wire], RawPage] = msgspec.json.Decoder(RawPage).decode
