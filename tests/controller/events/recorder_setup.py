"""A recorder of Events on the fake API server, in virtual time."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from controller.events.recorder import EVENTS, EventRecorder, ObjectRef
from controller.running import running
from controller.runtime.actions import Notice
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.requests import Document, Fault

START = datetime(2026, 1, 1, tzinfo=UTC)
COMPONENT = "virtualmachineinstancereplicaset-controller"


def ref(name: str = "web", namespace: str = "shop") -> ObjectRef:
    return ObjectRef(
        api_version="kubevirt.io/v1",
        kind="VirtualMachineInstanceReplicaSet",
        namespace=namespace,
        name=name,
        uid=f"uid-of-{name}",
        resource_version="77",
    )


def created(name: str) -> Notice:
    return Notice(reason="SuccessfulCreate", message=f"Created virtual machine: {name}", warning=False)


class Drops(Counter[str]):
    def count(self, reason: str) -> None:
        self[reason] += 1


class RecorderSetup:
    """A recorder and its server. `faults` are the faults of the next requests, in order.

    After the last fault, each request fails with `outage`. If `outage` is None, requests succeed.
    """

    def __init__(self, **kwargs: Any) -> None:
        self.server = FakeApiServer(latency_s=0)
        self.server.fault_for = lambda request: self.faults.pop(0) if self.faults else self.outage
        self.faults: list[Fault] = []
        self.outage: Exception | None = None
        self.drops = Drops()
        self.recorder = EventRecorder(
            self.server, component=COMPONENT, now=self.now, count_drop=self.drops.count, **kwargs
        )

    @property
    def events(self) -> list[Document]:
        """All Events on the server, in the order of their creation."""
        return list(self.server.documents(EVENTS, "shop").values())

    @property
    def verbs(self) -> list[str]:
        return [request.verb for request in self.server.requests]

    def counts(self, *, about: str = "web") -> list[tuple[str, int]]:
        """Message and count of each Event about an object, in the order of their creation."""
        return [(each["message"], each["count"]) for each in self.events if each["involvedObject"]["name"] == about]

    @staticmethod
    def now() -> datetime:
        return START + timedelta(seconds=asyncio.get_running_loop().time())

    async def send(self, *notices: Notice) -> None:
        self.recorder.publish(ref(), notices)
        await self.sent()

    async def sent(self) -> None:
        await self.recorder.flush(3600)
        assert len(self.recorder) == 0


@asynccontextmanager
async def recording(**kwargs: Any) -> AsyncIterator[RecorderSetup]:
    setup = RecorderSetup(**kwargs)
    async with running(setup.recorder.run()):
        yield setup
