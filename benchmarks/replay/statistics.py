"""What the replay server has seen of its client: requests, the first write, and answers to deleted VMIs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

from benchmarks.process_tree import cpu_s, rss_mb

IGNORED = ("leases", "events", "selfsubjectaccessreviews", "selfsubjectreviews")
"""The resources whose writes are not a write of a reconciliation."""


class Statistics:
    def __init__(self) -> None:
        self._pid = 0
        self._started = 0.0
        self._cpu_s = 0.0
        self._first_write: dict[str, float] = {}
        self._first_watch = 0.0
        self.requests: Counter[str] = Counter()
        self._awaited: dict[str, asyncio.Future[float]] = {}

    def begin(self, pid: int) -> None:
        """Count from now on. `pid` is the process of the client, or 0 if it is not known."""
        self._pid, self._started, self._cpu_s = pid, time.monotonic(), time.process_time()
        self._first_write, self._first_watch = {}, 0.0
        self.requests.clear()

    def note(self, verb: str, plural: str, subresource: str) -> None:
        self.requests[f"{verb} {plural}{f'/{subresource}' if subresource else ''}"] += 1
        if verb == "watch":
            self._first_watch = self._first_watch or time.monotonic()
        if self._first_write or verb in ("get", "list", "watch") or plural in IGNORED:
            return
        self._first_write = {"wall_s": time.monotonic() - self._started}
        if self._pid:
            self._first_write |= {"cpu_s": cpu_s(self._pid), "rss_mb": rss_mb(self._pid)}

    def note_create(self, owner: str, at: float) -> None:
        """A create request for a child of this owner arrived."""
        if (awaited := self._awaited.pop(owner, None)) and not awaited.done():
            awaited.set_result(at)

    async def next_create(self, owner: str, within_s: float) -> float:
        """Return the time at which the next create request for a child of this owner arrives."""
        self._awaited[owner] = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(within_s):
            return await self._awaited[owner]

    def report(self) -> dict[str, Any]:
        return {
            "seconds": time.monotonic() - self._started,
            "server_cpu_s": time.process_time() - self._cpu_s,
            "requests": dict(self.requests.most_common()),
            "first_write": self._first_write,
            "first_watch_at": self._first_watch,
        }
