"""Processes that compete for a lease on a fake API server. The time is the clock of the event loop."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

from controller.leaderelection.elector import LeaderElector
from controller.leaderelection.lease import LEASES
from informers.errors import ApiError, TransportError
from informers.meta import ObjectKey
from tests.fakes.answers import Answering, Call
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.requests import Document
from tests.fakes.virtual_time import now

LEASE = ObjectKey("here", "vmherd")


class LeaseServer(FakeApiServer):
    def __init__(self) -> None:
        super().__init__(latency_s=0, serves=[LEASES])

    @property
    def lease(self) -> Document:
        return self.document(LEASES, LEASE)

    @property
    def record(self) -> Document:
        spec: Document = self.lease["spec"]
        return spec

    def edit(self, **patch: Any) -> None:
        """Change the lease as a user does, without a check of its version."""
        self.change(LEASES, LEASE, patch)


class Connection(Answering):
    """The connection of one process to the server.

    If `error` is set, all requests fail with this error. The other failures have names in `trouble`: "refused", "hangs"
    and "loses answers".
    """

    def __init__(self, server: LeaseServer) -> None:
        self._server = server
        self.latency_s = 0.01
        self.trouble = ""
        self.error: ApiError | None = None
        self.log: list[tuple[float, str]] = []

    async def answer(self, call: Call) -> bytes:
        self.log.append((now(), call.method))
        if self.error is not None:
            raise self.error
        if self.trouble == "refused":
            raise TransportError("connection refused", sent=False)
        if self.trouble == "hangs":
            await asyncio.Event().wait()
        await asyncio.sleep(self.latency_s)
        answer = await self._server.answer(call)
        if self.trouble == "loses answers":
            await asyncio.Event().wait()
        await asyncio.sleep(self.latency_s)
        return answer


class Process:
    """A candidate with a connection of its own. It leads until `stop` is set or the lease is lost."""

    def __init__(self, server: LeaseServer, name: str, **kwargs: Any) -> None:
        self.connection = Connection(server)
        self.reports: list[bool] = []
        self.stop = asyncio.Event()
        self.elector = LeaderElector(
            lambda: nullcontext(self.connection),
            **{
                "namespace": "here",
                "name": "vmherd",
                "identity": name,
                "clock": now,
                "wall_clock": lambda: datetime(2026, 11, 21, tzinfo=UTC) + timedelta(seconds=now()),
                "report": self.reports.append,
                "chance": lambda: 0.5,
                **kwargs,
            },
        )
        self.led_from = self.led_to = -1.0
        self.on_election: Callable[[], None] = lambda: None

    async def run(self) -> bool:
        """Lead until `stop` is set. Return whether the process was ever the leader."""
        async with self.elector.elected(self.stop) as leading:
            if leading:
                self.led_from = now()
                self.on_election()
                try:
                    await self.stop.wait()
                finally:
                    self.led_to = now()
        return leading

    def start(self) -> asyncio.Task[bool]:
        return asyncio.create_task(self.run())


async def one_leader() -> tuple[LeaseServer, Process, asyncio.Task[bool]]:
    """A server, a process that has led for almost a second, and the task of the process."""
    server = LeaseServer()
    leader = Process(server, "a")
    task = leader.start()
    await asyncio.sleep(1)
    return server, leader, task


async def leader_and_standby(
    **options: Any,
) -> tuple[LeaseServer, tuple[Process, asyncio.Task[bool]], tuple[Process, asyncio.Task[bool]]]:
    """A server, and two processes with their tasks: the leader and the standby. `options` are the options of the
    standby.
    """
    server, leader, task = await one_leader()
    standby = Process(server, "b", **options)
    return server, (leader, task), (standby, standby.start())


async def settle(*tasks: asyncio.Task[Any]) -> list[Any]:
    """Cancel the running tasks, and return the result or exception of each task."""
    for task in tasks:
        task.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)
