"""Correlation of Events: repeats are counted, similar Events are combined, and requests are limited for each object.

The rules are those of client-go, so that the output of `kubectl describe` looks familiar:

- A repeat has the same object, component, type, reason and message. Within ten minutes, it raises the count of the
  existing Event.
- If more than ten Events within ten minutes differ only in the message, the others share one Event,
  "(combined from similar events): ...". This Event shows the latest message.
- Each object has a token bucket of 25 requests. Every five minutes, one request is added.

The code here does not wait, send or read a clock. The argument `at` is the time of the occurrence. Memory is bounded,
and entries expire after ten minutes. Counts stay exact even if the limit suppresses a request, because the next request
for the Event carries the full count.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from msgspec import Struct

WINDOW = timedelta(minutes=10)
DISTINCT = 10
BURST = 25
REFILL = timedelta(minutes=5)
CAPACITY = 4096

MESSAGE_LIMIT = 1024
"""The longest message that the Event API accepts, in bytes of UTF-8."""

COMBINED = "(combined from similar events): "

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NAME_LIMIT = 253 - len(".") - 16


class ObjectRef(Struct, frozen=True, kw_only=True):
    """The object that an Event is about. `namespace` is "" for cluster-scoped objects."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str = ""

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Identifies the object independent of its resourceVersion."""
        return (self.uid, self.kind, self.namespace, self.name)


Identity: TypeAlias = tuple[str, str, str, str]


class Series:
    """One Event object, which is on the server or will be sent: message, first and last time, count."""

    __slots__ = (
        "combined",
        "component",
        "count",
        "first",
        "last",
        "message",
        "name",
        "posted",
        "reason",
        "ref",
        "warning",
    )

    def __init__(
        self, ref: ObjectRef, *, component: str, reason: str, warning: bool, name: str, at: datetime, combined: bool
    ) -> None:
        self.ref = ref
        self.component = component
        self.reason = reason
        self.warning = warning
        self.name = name
        self.combined = combined
        self.first = at
        self.last = at
        self.count = 0
        self.posted = False
        """True if the server has the Event. Only the sender sets this."""
        self.message = ""
        """The latest message, without the prefix of a combined Event. Write `text` to the server instead."""

    @property
    def text(self) -> str:
        """The message as it is written to the server."""
        return truncate(COMBINED + self.message) if self.combined else self.message

    def add_occurrence(self, message: str, at: datetime) -> None:
        self.message = message
        self.last = at
        self.count += 1


class _Group:
    """The Events with the same object, component, type and reason. They differ only in the message."""

    __slots__ = ("combined", "singles")

    def __init__(self) -> None:
        self.singles: dict[str, Series] = {}
        """At most DISTINCT Events by message, ordered by the last occurrence, oldest first."""
        self.combined: Series | None = None


class Correlator:
    """Maps each occurrence to the Event that shows it."""

    def __init__(self, *, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._groups: dict[Hashable, tuple[datetime, _Group]] = {}
        """Groups with the time of the last occurrence, oldest first."""
        self._stamp = 0

    def __len__(self) -> int:
        return len(self._groups)

    def record(
        self, ref: ObjectRef, *, component: str, reason: str, message: str, warning: bool, at: datetime
    ) -> Series:
        """Count one occurrence. Return the Event that shows it: a new Event, or an earlier Event with a new count."""
        message = truncate(message)
        group = self._group((component, ref.identity, warning, reason), at)
        series = group.singles.pop(message, None)
        if series is not None and at - series.last <= WINDOW:
            group.singles[message] = series
        elif self._has_room(group, at):
            series = self._new(ref, component=component, reason=reason, warning=warning, at=at, combined=False)
            group.singles[message] = series
        else:
            series = group.combined
            if series is None or at - series.last > WINDOW:
                series = self._new(ref, component=component, reason=reason, warning=warning, at=at, combined=True)
                group.combined = series
        series.add_occurrence(message, at)
        return series

    def _group(self, key: Hashable, at: datetime) -> _Group:
        _, group = self._groups.pop(key, (at, None))
        if group is None:
            group = _Group()
            self._evict(at)
        self._groups[key] = (at, group)
        return group

    def _evict(self, at: datetime) -> None:
        """Make room for one more group: remove expired groups, then the oldest group if there are still too many."""
        while self._groups:
            key, (last, _) = next(iter(self._groups.items()))
            if at - last <= WINDOW and len(self._groups) < self._capacity:
                return
            del self._groups[key]

    @staticmethod
    def _has_room(group: _Group, at: datetime) -> bool:
        """True if the group may have one more Event of its own. Removes the oldest Event if it has expired."""
        if len(group.singles) < DISTINCT:
            return True
        message, oldest = next(iter(group.singles.items()))
        if at - oldest.last <= WINDOW:
            return False
        del group.singles[message]
        return True

    def _new(
        self, ref: ObjectRef, *, component: str, reason: str, warning: bool, at: datetime, combined: bool
    ) -> Series:
        # The name ends with a time in nanoseconds, as in client-go. Names stay unique even if the clock is coarse.
        self._stamp = max(self._stamp + 1, (at - _EPOCH) // _MICROSECOND * 1000)
        name = f"{ref.name[:_NAME_LIMIT].rstrip('.-')}.{self._stamp:x}"
        return Series(ref, component=component, reason=reason, warning=warning, name=name, at=at, combined=combined)


class SpamFilter:
    """Limits requests with one token bucket for each pair of object and component."""

    def __init__(self, *, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._buckets: dict[tuple[str, Identity], tuple[float, datetime]] = {}
        """The remaining requests and the time of the last use, least recently used first.

        A missing entry means a full bucket.
        """

    def __len__(self) -> int:
        return len(self._buckets)

    def admit(self, ref: ObjectRef, component: str, at: datetime) -> bool:
        """Return True if one more request about the object may be sent, and take it from the bucket."""
        key = (component, ref.identity)
        left, since = self._buckets.pop(key, (float(BURST), at))
        left = min(float(BURST), left + max(0.0, (at - since) / REFILL))
        admitted = left >= 1.0
        self._buckets[key] = (left - 1.0 if admitted else left, at)
        while len(self._buckets) > self._capacity:
            del self._buckets[next(iter(self._buckets))]
        return admitted


class Occasions:
    """The occasions for which an Event was already published. Bounded: the least recently used occasion is removed."""

    def __init__(self, *, capacity: int = 2 * CAPACITY) -> None:
        self._capacity = capacity
        self._reported: dict[Hashable, None] = {}

    def is_reported(self, occasion: Hashable) -> bool:
        if occasion not in self._reported:
            return False
        self._reported[occasion] = self._reported.pop(occasion)
        return True

    def mark_reported(self, occasion: Hashable) -> None:
        self._reported[occasion] = None
        if len(self._reported) > self._capacity:
            del self._reported[next(iter(self._reported))]


def truncate(message: str) -> str:
    """Cut a message to the limit of the Event API, between two characters. Replace what UTF-8 cannot encode."""
    if message.isascii():
        return message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 3] + "..."
    encoded = message.encode("utf-8", "replace")
    if len(encoded) > MESSAGE_LIMIT:
        return encoded[: MESSAGE_LIMIT - 3].decode("utf-8", "ignore") + "..."
    return encoded.decode()
