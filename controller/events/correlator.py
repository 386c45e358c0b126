"""Which Events are worth a request: repeats are counted, similar ones folded, objects that talk too much held back.

The rules are client-go's, so that `kubectl describe` reads as people know it:

- A repeat (same object, component, type, reason and message) within ten minutes raises the count of its Event.
- Of more than ten different messages that share all else within ten minutes, the rest goes into one Event,
  "(combined from similar events): ...", which shows the latest of them.
- Each object has a bucket of 25 requests, refilled by one every five minutes.

Nothing here waits, sends or reads a clock: `at` is the moment of the occurrence. What it remembers is bounded, and
goes when its ten minutes are over. Counts are exact even where a request is held back: the next one carries them.
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
REMEMBERED = 4096

MESSAGE_LIMIT = 1024
"""Bytes of UTF-8, which is what the Event API allows."""

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
        """Who it is, whichever version of it: equal for the same object only."""
        return (self.uid, self.kind, self.namespace, self.name)


Identity: TypeAlias = tuple[str, str, str, str]


class Series:
    """One Event object, on the server or about to be: what was said, since when, how often."""

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
        """Whether the server has the Event: the sender's note."""
        self.message = ""
        """The latest, without the prefix of a combined one; `text` is what to write."""

    @property
    def text(self) -> str:
        return fit(COMBINED + self.message) if self.combined else self.message

    def happened(self, message: str, at: datetime) -> None:
        self.message = message
        self.last = at
        self.count += 1


class _Group:
    """What one component said about one object under one reason."""

    __slots__ = ("combined", "singles")

    def __init__(self) -> None:
        self.singles: dict[str, Series] = {}
        """By message, the one that was repeated longest ago first. Never more than DISTINCT."""
        self.combined: Series | None = None


class Correlator:
    """Maps each occurrence to the Event that tells it."""

    def __init__(self, *, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._groups: dict[Hashable, tuple[datetime, _Group]] = {}
        """With the time of the last occurrence, longest ago first."""
        self._stamp = 0

    def __len__(self) -> int:
        return len(self._groups)

    def tell(self, ref: ObjectRef, *, component: str, reason: str, message: str, warning: bool, at: datetime) -> Series:
        """Count one occurrence, and return the Event that shows it: a new one, or an earlier one with a new count."""
        message = fit(message)
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
        series.happened(message, at)
        return series

    def _group(self, key: Hashable, at: datetime) -> _Group:
        _, group = self._groups.pop(key, (at, None))
        if group is None:
            group = _Group()
            self._forget_old(at)
        self._groups[key] = (at, group)
        return group

    def _forget_old(self, at: datetime) -> None:
        """Make room for one more group: those whose window is over, and the oldest if they are still too many."""
        while self._groups:
            key, (last, _) = next(iter(self._groups.items()))
            if at - last <= WINDOW and len(self._groups) < self._remembered:
                return
            del self._groups[key]

    @staticmethod
    def _has_room(group: _Group, at: datetime) -> bool:
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
        # Nanoseconds, as client-go names Events; never the same twice, however coarse the clock is.
        self._stamp = max(self._stamp + 1, (at - _EPOCH) // _MICROSECOND * 1000)
        name = f"{ref.name[:_NAME_LIMIT].rstrip('.-')}.{self._stamp:x}"
        return Series(ref, component=component, reason=reason, warning=warning, name=name, at=at, combined=combined)


class SpamFilter:
    """A bucket of requests for each object of each component."""

    def __init__(self, *, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._buckets: dict[tuple[str, Identity], tuple[float, datetime]] = {}
        """What is left, and since when; the one used longest ago first. A full bucket need not be remembered."""

    def __len__(self) -> int:
        return len(self._buckets)

    def admit(self, ref: ObjectRef, component: str, at: datetime) -> bool:
        """Whether one more request about the object may be sent; if so, it is counted."""
        key = (component, ref.identity)
        left, since = self._buckets.pop(key, (float(BURST), at))
        left = min(float(BURST), left + max(0.0, (at - since) / REFILL))
        admitted = left >= 1.0
        self._buckets[key] = (left - 1.0 if admitted else left, at)
        while len(self._buckets) > self._remembered:
            del self._buckets[next(iter(self._buckets))]
        return admitted


class Occasions:
    """Which occasions have been told. Bounded: the one asked about longest ago is forgotten first."""

    def __init__(self, *, remembered: int = 2 * REMEMBERED) -> None:
        self._remembered = remembered
        self._told: dict[Hashable, None] = {}

    def told(self, occasion: Hashable) -> bool:
        if occasion not in self._told:
            return False
        self._told[occasion] = self._told.pop(occasion)
        return True

    def remember(self, occasion: Hashable) -> None:
        self._told[occasion] = None
        if len(self._told) > self._remembered:
            del self._told[next(iter(self._told))]


def fit(message: str) -> str:
    """Cut a message to what an Event holds, at the end of a character; replace what UTF-8 cannot express."""
    if message.isascii():
        return message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 3] + "..."
    encoded = message.encode("utf-8", "replace")
    if len(encoded) > MESSAGE_LIMIT:
        return encoded[: MESSAGE_LIMIT - 3].decode("utf-8", "ignore") + "..."
    return encoded.decode()
