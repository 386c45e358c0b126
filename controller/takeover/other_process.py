"""Finds another vmherd that writes the same objects: with another lease, or with `--no-leader-elect`.

The field manager of each process is `vmherd/` and its identity. So `managedFields`, which only the server has, show
which process wrote an object, and when. A leader was the only writer when it began, so a later write of another process
is one of a second writer. Only times of the API server are compared. The sample are the objects that were reconciled
last, because a second writer has the same reasons to write them.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from controller.runtime.actions import AnyResource
from controller.runtime.execute.requests import REQUEST_TIMEOUT_S, Requests
from controller.takeover.discovery import read_writes
from controller.version import PROGRAM
from informers.errors import Forbidden, NotFound
from informers.meta import ObjectKey
from informers.objects import METADATA

MARGIN: Final = timedelta(seconds=30)
"""The last writes of an earlier leader may arrive this much later than ours, and the API servers' clocks may differ."""

QUIET_S: Final = 600.0
"""Without a write for this time, the other process has stopped."""

Sample = Callable[[], Iterable[tuple[AnyResource, ObjectKey]]]


def writer_name(identity: str) -> str:
    """Return the field manager of a process. The API server allows 128 characters."""
    return f"{PROGRAM}/{identity}"[:128]


class OtherProcess(Struct, frozen=True):
    """Another vmherd has written an object. Both continue: if both stopped, no process would do the work."""

    evidence: str
    stops = False

    def __str__(self) -> str:
        return f"{self.evidence}, but two controllers must not reconcile the same objects: end one of the two"


class WriterSample:
    """Compares the writers of a sample of objects with this process."""

    def __init__(self, client: Requests, identity: str, sample: Sample) -> None:
        self._client = client
        self._own = writer_name(identity)
        self._sample = sample
        self._first: datetime | None = None
        """The time of this process's first known write."""

        self._newest: datetime | None = None
        self._seen_at = 0.0
        self._found: OtherProcess | None = None

    async def find(self) -> OtherProcess | None:
        """Return another vmherd that has written objects of the sample lately, or None. Raise ApiError."""
        foreign: list[tuple[datetime, str, str]] = []
        for resource, key in tuple(self._sample()):
            path = resource.path(*key)
            try:
                answer = await self._client.request("GET", path, accept=METADATA, timeout_s=REQUEST_TIMEOUT_S)
            except (NotFound, Forbidden):
                continue
            for manager, at in read_writes(answer):
                if manager == self._own:
                    self._first = min(at, self._first or at)
                elif manager.startswith(f"{PROGRAM}/"):
                    foreign.append((at, manager, f"{resource.name} {key}"))
        return self._judged(max(foreign, default=None))

    def _judged(self, last: tuple[datetime, str, str] | None) -> OtherProcess | None:
        now = asyncio.get_running_loop().time()
        known = self._newest or (self._first and self._first + MARGIN)
        if last is not None and known is not None and last[0] > known:
            at, manager, name = last
            self._newest, self._seen_at = at, now
            writer = manager.removeprefix(f"{PROGRAM}/")
            self._found = OtherProcess(f"another vmherd, {writer}, has written {name}")
        elif now - self._seen_at >= QUIET_S:
            self._found = None
        return self._found
