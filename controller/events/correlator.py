"""Counts repeats of Events, combines similar Events, and limits the number of requests, as client-go does.

A repeat within ten minutes raises the count. Of Events that differ only in the message, one combined Event counts those
after the tenth, with the latest message. Each object and source component has a token bucket. If it prevents a request,
the next one has the full count. The argument `at` is the time at which the Event occurred.
"""

from collections.abc import Hashable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from msgspec import Struct

from controller.apimachinery.names import NAME_LENGTH, cut

WINDOW = timedelta(minutes=10)
"""The longest time between two occurrences that are counted in the same Event."""

DISTINCT = 10
BURST = 25
"""The number of tokens in a full token bucket. Each request takes one token."""

REFILL = timedelta(minutes=5)
"""The time after which a token bucket gets one more token."""

CAPACITY = 4096
"""The largest number of groups of Events, and of token buckets, in memory."""

MESSAGE_LIMIT = 1024
"""The longest message that the Event API accepts, in bytes of UTF-8."""

COMBINED = "(combined from similar events): "
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_STAMP_LENGTH = 16


class ObjectRef(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The object that an Event is about. `namespace` is "" for cluster-scoped objects."""

    api_version: str
    kind: str
    namespace: str = ""
    name: str
    uid: str = ""
    resource_version: str = ""

    @property
    def identity(self) -> "Identity":
        """What identifies the object. Each write changes the resourceVersion, so this does not belong to it."""
        return (self.uid, self.kind, self.namespace, self.name)


Identity: TypeAlias = tuple[str, str, str, str]


class Series(Struct, eq=False, kw_only=True):
    """One Event. `message` is the latest, without `COMBINED`. The server gets `text`, and has it if `posted`."""

    ref: ObjectRef
    component: str
    reason: str
    warning: bool
    name: str
    combined: bool
    first: datetime
    last: datetime
    count: int = 0
    posted: bool = False
    message: str = ""
    occasions: list[Hashable] = []
    """The occasions that the Event reports and that no attempt to send it has reported yet."""

    @property
    def text(self) -> str:
        return truncate(COMBINED + self.message) if self.combined else self.message

    def add_occurrence(self, message: str, at: datetime) -> None:
        self.message = message
        self.last = at
        self.count += 1


class _Group(Struct, eq=False):
    """Events that differ only in the message: at most DISTINCT `singles` by message, the latest at the end."""

    singles: dict[str, Series] = {}
    combined: Series | None = None


class Correlator:
    def __init__(self, *, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._groups: dict[Hashable, tuple[datetime, _Group]] = {}
        """Each group, with the time of its last Event. The group with the earliest is first."""
        self._stamp = 0

    def __len__(self) -> int:
        return len(self._groups)

    def record(
        self, ref: ObjectRef, *, component: str, reason: str, message: str, warning: bool, at: datetime
    ) -> Series:
        """Count one occurrence. Return the earlier Event that counts it, or else a new one."""
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
        """Remove all groups without an Event within `WINDOW`, or else the one with the earliest Event for more room."""
        while self._groups:
            key, (last, _) = next(iter(self._groups.items()))
            if at - last <= WINDOW and len(self._groups) < self._capacity:
                return
            del self._groups[key]

    @staticmethod
    def _has_room(group: _Group, at: datetime) -> bool:
        """Return True if the group may have one more Event. The oldest is removed if it is older than `WINDOW`."""
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
        # The name ends with a time in nanoseconds, as in client-go. The number is always larger than the previous
        # number, so each name is unique.
        self._stamp = max(self._stamp + 1, (at - _EPOCH) // _MICROSECOND * 1000)
        name = f"{cut(ref.name, NAME_LENGTH - len('.') - _STAMP_LENGTH)}.{self._stamp:x}"
        return Series(
            ref=ref,
            component=component,
            reason=reason,
            warning=warning,
            name=name,
            combined=combined,
            first=at,
            last=at,
        )


class SpamFilter:
    def __init__(self, *, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._buckets: dict[tuple[str, Identity], tuple[float, datetime]] = {}
        """The tokens and the last use of each bucket, the least recently used first. Others are full."""

    def __len__(self) -> int:
        return len(self._buckets)

    def admit(self, ref: ObjectRef, component: str, at: datetime) -> bool:
        """Take one token from the bucket of this object and component. Return False if the bucket is empty."""
        key = (component, ref.identity)
        left, since = self._buckets.pop(key, (float(BURST), at))
        left = min(float(BURST), left + max(0.0, (at - since) / REFILL))
        admitted = left >= 1.0
        self._buckets[key] = (left - 1.0 if admitted else left, at)
        self._evict(at)
        return admitted

    def _evict(self, at: datetime) -> None:
        """Remove full buckets, and any if there are too many, the least recently used first, until one must stay."""
        while self._buckets:
            key, (left, since) = next(iter(self._buckets.items()))
            is_full = left + (at - since) / REFILL >= BURST
            if not is_full and len(self._buckets) <= self._capacity:
                return
            del self._buckets[key]


class Occasions:
    """Remembers the `capacity` latest occasions (object, reason and cause) that were reported in an Event."""

    def __init__(self, *, capacity: int = 2 * CAPACITY) -> None:
        self._capacity = capacity
        self._reported: dict[Hashable, None] = {}

    def is_reported(self, occasion: Hashable) -> bool:
        if occasion not in self._reported:
            return False
        self._reported[occasion] = self._reported.pop(occasion)
        return True

    def forget(self, occasion: Hashable) -> None:
        self._reported.pop(occasion, None)

    def mark_reported(self, occasion: Hashable) -> None:
        self._reported[occasion] = None
        if len(self._reported) > self._capacity:
            del self._reported[next(iter(self._reported))]


def truncate(message: str) -> str:
    """Return the message, cut to `MESSAGE_LIMIT` bytes with "..." at its end. "?" replaces what UTF-8 cannot encode."""
    if message.isascii():
        return message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 3] + "..."
    encoded = message.encode("utf-8", "replace")
    if len(encoded) > MESSAGE_LIMIT:
        return encoded[: MESSAGE_LIMIT - 3].decode("utf-8", "ignore") + "..."
    return encoded.decode()
