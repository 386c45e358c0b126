"""All objects of one resource, and the watches on them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from benchmarks.replay.patterns import Pattern

HISTORY = 50_000
"""The number of changes that a new watch can start from. An older resourceVersion is expired."""

Key = tuple[str, str]
Listener = Callable[[str, bytes], None]
"""Receives the namespace of a changed object and the line of the watch."""


class Item:
    """One object. It is rendered from its pattern, until a client changes the object."""

    __slots__ = ("body", "number", "pattern", "version")

    def __init__(self, version: int, *, body: bytes = b"", pattern: Pattern | None = None, number: int = 0) -> None:
        self.version = version
        self.body = body
        self.pattern = pattern
        self.number = number

    def render(self) -> bytes:
        return self.body if self.pattern is None else self.pattern.render(self.number, self.version)


class Collection:
    """The objects of one resource by namespace and name, in the order of their creation."""

    def __init__(self, group: str, version: str, plural: str, kind: str) -> None:
        self.group, self.api_version, self.plural, self.kind = group, version, plural, kind
        self.items: dict[Key, Item] = {}
        self.listeners: set[Listener] = set()
        self._history: deque[tuple[int, str, bytes]] = deque(maxlen=HISTORY)
        self._forgotten = 0

    @property
    def head(self) -> bytes:
        """The fields `kind` and `apiVersion` of an object of this resource, as JSON."""
        group = f"{self.group}/{self.api_version}" if self.group else self.api_version
        return f'"kind":"{self.kind}","apiVersion":"{group}"'.encode()

    def publish(self, event: str, namespace: str, version: int, body: bytes) -> None:
        """Send one event to all watches, and remember the event for later watches."""
        line = b'{"type":"%b","object":%b}\n' % (event.encode(), body)
        if len(self._history) == HISTORY:
            self._forgotten = self._history[0][0]
        self._history.append((version, namespace, line))
        for listener in tuple(self.listeners):
            listener(namespace, line)

    def since(self, version: int) -> Iterator[tuple[str, bytes]] | None:
        """Return the events after a resourceVersion, or None if the version is expired."""
        if version < self._forgotten:
            return None
        return ((namespace, line) for at, namespace, line in self._history if at > version)

    def keys(self, namespace: str) -> list[Key]:
        return [key for key in self.items if not namespace or key[0] == namespace]


def encode(document: Any) -> bytes:
    return msgspec.json.encode(document)
