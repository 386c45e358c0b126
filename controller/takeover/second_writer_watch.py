"""Looks for a second writer every minute while this process works. A second writer is another controller that
reconciles the same objects. While a second writer runs, this process writes nothing.

A second writer can begin after the check before the start. For example, an administrator may remove the flags of
virt-controller, an upgrade may undo the takeover, or another vmherd may lead with another lease. If this process then
continued to write, two controllers would delete each other's VMs.

If two processes outside the cluster lead with different leases, they may find each other. Then both stop writing until
an administrator ends one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import Final, NamedTuple, Protocol

import msgspec
import structlog

from controller.config.settings import Config, shared_with_kubevirt
from controller.leaderelection.other_leader import OtherLeaders
from controller.runtime.actions import Notice
from controller.runtime.execute.requests import Requests
from controller.takeover.second_writer import SecondWriter, find_second_writer
from informers.errors import ApiError, GateClosed

log = structlog.get_logger()

INTERVAL_S: Final = 60.0
"""The time between two checks, in seconds."""

TELL_WITHIN_S: Final = 2.0
"""The maximum time, in seconds, to send the Event about a second writer. After this time, the process writes nothing
any more, not even Events.
"""

FOUND: Final = "SecondWriter"
GONE: Final = "SecondWriterGone"


class SecondWriterInstruments(Protocol):
    """The metric that shows whether there is a second writer."""

    def second_writer(self, *, found: bool) -> None: ...


class Announcer(Protocol):
    """Sends an Event about this controller."""

    async def announce(self, notice: Notice, *, within_s: float) -> None: ...


class Found(NamedTuple):
    """A second writer: the fact that shows it, and a message for users with the remedies."""

    evidence: str
    message: str


class SecondWriterWatch:
    """Checks at intervals whether another controller writes the same objects. `reason` names this second writer, or is
    empty.
    """

    def __init__(
        self,
        client: Requests,
        config: Config,
        *,
        now: Callable[[], datetime],
        instruments: SecondWriterInstruments,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self.reason = ""
        self._client = client
        self._config = config
        self._now = now
        self._instruments = instruments
        self._interval_s = interval_s
        self._found: dict[str, Found | None] = {}
        """The last result of each look, by the name of the look."""

    def gate(self) -> None:
        """Raise GateClosed while there is a second writer. The client calls this method before each write."""
        if self.reason:
            raise GateClosed(f"not sent: {self.reason}")

    def ready(self) -> str | None:
        """Return the reason why this process is not ready, or None."""
        return self.reason or None

    async def run(self, announcer: Announcer) -> None:
        """Check every `interval_s` seconds until the task is cancelled. If a request of a check fails, the result of
        the last check stays valid.
        """
        looks = dict(self._looks())
        try:
            while True:
                await asyncio.sleep(self._interval_s)
                for name, look in looks.items():
                    await self._check(name, look, announcer)
        finally:
            self._set("")

    def _looks(self) -> Iterator[tuple[str, Callable[[], Awaitable[Found | None]]]]:
        """Yield the functions that look for a second writer, with their names."""
        config = self._config
        if config.observe:
            return
        if config.second_writer_check and shared_with_kubevirt(config):
            yield "loops of KubeVirt", self._find_loops
        leaders = OtherLeaders(self._client, config)

        async def find_leader() -> Found | None:
            leader = await leaders.find()
            return None if leader is None else Found(leader.evidence, str(leader))

        yield "another vmherd", find_leader

    async def _find_loops(self) -> Found | None:
        objections = await find_second_writer(self._client, self._config, now=self._now, deadline=0.0, advises=False)
        found = [each.evidence for each in objections if isinstance(each, SecondWriter) and each.is_certain]
        evidence = "; ".join(found)
        return Found(evidence, str(SecondWriter(evidence))) if found else None

    async def _check(self, name: str, look: Callable[[], Awaitable[Found | None]], announcer: Announcer) -> None:
        try:
            self._found[name] = await look()
        except (ApiError, TimeoutError, msgspec.DecodeError) as error:
            log.debug("cannot look for a second writer", what=name, why=str(error))
            return
        found = [each for each in self._found.values() if each is not None]
        reason = "; ".join(each.evidence for each in found)
        if reason and not self.reason:
            log.error("stopped writing, because another controller works on the same objects", evidence=reason)
            message = f"vmherd has stopped writing: {'; '.join(each.message for each in found)}"
            await announcer.announce(Notice(reason=FOUND, message=message), within_s=TELL_WITHIN_S)
        elif self.reason and not reason:
            log.info("writing again, because the other controller has stopped")
        was_found = bool(self.reason)
        self._set(reason)
        if was_found and not reason:
            gone = Notice(reason=GONE, message="vmherd writes again: the other controller has stopped", warning=False)
            await announcer.announce(gone, within_s=TELL_WITHIN_S)

    def _set(self, reason: str) -> None:
        self.reason = reason
        self._instruments.second_writer(found=bool(reason))
