"""The share of the event loop's time that each namespace may use, and the quarantine of keys that keep the loop busy.

A plan for a very large object takes a part of a second, and a user can cause such plans again and again. So the
reconciliations of a namespace that has used too much time wait.

A *stretch* is the work of one reconciliation between two waits, in which nothing else runs. A key with a stretch of
more than `SLOW_S` is in quarantine: it takes no worker's place, one such key is reconciled at a time, and it waits
before each. Each further slow reconciliation doubles the wait, and each quick one halves it, down to `FIRST_S`. The
lease names the keys, so the next leader has the same quarantine.
"""

import time
import types
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from informers.meta import ObjectKey

T = TypeVar("T")

SHARE: Final = 0.5
"""The share of the event loop's time that one namespace may use in the long run."""

ALLOWANCE_S: Final = 1.0
"""The time that a namespace may use in addition to its share before it waits, in seconds. Most use less."""

MAX_NAMESPACES: Final = 10_000
"""The maximum number of stored namespaces. Above this number, namespaces with a used time of 0 are removed."""

SLOW_S: Final = 1.0
FIRST_S, LONGEST_S = 10.0, 300.0
"""The shortest and the longest wait of a key in quarantine, in seconds."""

BUSY_S: Final = 1.0
"""The wait, in seconds, while another key in quarantine is reconciled."""

LISTED: Final = 10


class LoopShare:
    """The used time of each namespace, and the keys in quarantine. `now` is monotonic, `cpu` that of the loop."""

    def __init__(self, now: Callable[[], float], cpu: Callable[[], float] = time.thread_time) -> None:
        self._now = now
        self.cpu = cpu
        self._used: dict[str, tuple[float, float]] = {}
        """The used seconds of each namespace, and their time. They shrink by SHARE each second."""
        self._quarantine: Mapping[str, tuple[float, float]] = {}
        """For each `Usage.name`: the wait and its end, in seconds. Other threads read it, so it is only replaced."""
        self._in_lane = ""
        self.at_work = ""
        """The name of the key whose stretch runs now, or "". Any thread may read it."""

    def quarantined(self) -> int:
        """Return the number of keys in quarantine. Any thread may call it."""
        return len(self._waits())

    def spend(self, usage: "Usage") -> float:
        """Record a reconciliation. Return the wait of its key in quarantine in seconds, or 0."""
        name, namespace = usage.name, usage.key.namespace
        if usage.sum_s > 0:
            self._used[namespace] = (self._left(namespace) + usage.sum_s, self._now())
        if len(self._used) > MAX_NAMESPACES:
            self._used = {each: used for each, used in self._used.items() if self._left(each) > 0}
        self._in_lane = "" if self._in_lane == name else self._in_lane
        before = self._quarantine.get(name)
        if before is None and not usage.is_slow:
            return 0.0
        wait_s = before[0] if before is not None else FIRST_S / 2
        wait_s = min(wait_s * 2, LONGEST_S) if usage.is_slow else wait_s / 2
        waits = {**self._waits(), name: (wait_s, self._now() + wait_s)}
        self._quarantine = {each: wait for each, wait in waits.items() if wait[0] >= FIRST_S}
        return wait_s if wait_s >= FIRST_S else 0.0

    def wait_s(self, usage: "Usage") -> float:
        """Return the time, in seconds, until the next reconciliation of this key may start."""
        wait_s = max(0.0, self._left(usage.key.namespace) - ALLOWANCE_S) / SHARE
        if usage.name in self._quarantine:
            busy_s = BUSY_S if self._in_lane else 0.0
            wait_s = max(wait_s, busy_s, self._quarantine[usage.name][1] - self._now())
        return round(wait_s, 3)  # a timer cannot wait for the rest of a rounding error

    def enter_lane(self, usage: "Usage") -> bool:
        """Return True if the key is in quarantine. The lane of the quarantine is then busy until `spend`."""
        if usage.name not in self._quarantine:
            return False
        self._in_lane = usage.name
        return True

    def note(self, inherited: str, away_s: float) -> str:
        """Return the keys of which the lease warns the next leader, after those `inherited`. Any thread may call it."""
        if inherited:
            wait = (FIRST_S, self._now() + FIRST_S)
            names = [each for each in inherited.split(",") if each][:LISTED]
            self._quarantine = {**dict.fromkeys(names, wait), **self._quarantine}
        waits = self._waits()
        names = [self.at_work if away_s > SLOW_S else "", *sorted(waits, key=lambda name: -waits[name][0])]
        return ",".join([*dict.fromkeys(filter(None, names))][:LISTED])

    def _waits(self) -> dict[str, tuple[float, float]]:
        """Return the waits, without those of inherited keys whose objects do not exist: they are never reconciled."""
        overdue = self._now() - LONGEST_S
        return {name: wait for name, wait in self._quarantine.items() if wait[1] > overdue}

    def _left(self, namespace: str) -> float:
        seconds, at = self._used.get(namespace, (0.0, 0.0))
        return max(0.0, seconds - (self._now() - at) * SHARE)


class Usage:
    """The CPU time of one reconciliation, in seconds: the longest stretch, and the sum that counts for the share."""

    def __init__(self, share: LoopShare, controller: str, key: ObjectKey) -> None:
        self.name, self.key = f"{controller}/{key}", key
        self.sum_s = self.longest_s = 0.0
        self._share = share

    @property
    def is_slow(self) -> bool:
        return self.longest_s > SLOW_S

    @types.coroutine
    def measured(self, work: Coroutine[Any, Any, T], *, counts: bool) -> Generator[Any, Any, T]:
        """Await `work` and measure each of its stretches. If `counts` is False, the sum does not grow."""
        share, value, failure = self._share, None, None
        while True:
            share.at_work, started = self.name, share.cpu()
            try:
                awaited = work.send(value) if failure is None else work.throw(failure)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                spent_s, share.at_work = share.cpu() - started, ""
                self.longest_s = max(self.longest_s, spent_s)
                self.sum_s += spent_s if counts else 0.0
            value = failure = None
            try:
                value = yield awaited
            except BaseException as error:
                failure = error


USAGE: Final[ContextVar[Usage | None]] = ContextVar("usage", default=None)
"""The usage of the running reconciliation. Its tasks inherit it."""


async def measured_part(work: Callable[..., Coroutine[Any, Any, T]], *arguments: object) -> T:
    """Run a task of a reconciliation. Only its longest stretch counts. One that is cancelled early calls nothing."""
    usage = USAGE.get()
    running = work(*arguments)
    return await (running if usage is None else usage.measured(running, counts=False))
