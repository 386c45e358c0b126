"""A sink for Events that keeps them as the API server does, and a recorder that writes to it, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from controller.events.recorder import EventRecorder, ObjectRef
from controller.running import running
from controller.runtime.plan import AnyResource, Notice
from informers.errors import AlreadyExists, NotFound, TransportError
from informers.meta import ObjectKey

START = datetime(2026, 1, 1, tzinfo=UTC)
COMPONENT = "virtualmachineinstancereplicaset-controller"


def ref(name: str = "web") -> ObjectRef:
    return ObjectRef(
        api_version="kubevirt.io/v1",
        kind="VirtualMachineInstanceReplicaSet",
        namespace="shop",
        name=name,
        uid=f"uid-of-{name}",
        resource_version="77",
    )


def created(name: str) -> Notice:
    return Notice(reason="SuccessfulCreate", message=f"Created virtual machine: {name}", warning=False)


class EventServer:
    """Keeps Events as the API server does; fails or waits where a test says so."""

    def __init__(self) -> None:
        self.events: dict[ObjectKey, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.failures: list[Exception] = []
        """What the next requests fail with, in order."""
        self.broken_by: Exception | None = None
        self.loses_answers = 0
        self.delay_s = 0.0

    def told(self, *, about: str = "web") -> list[tuple[str, int]]:
        """Message and count of each Event about an object, in the order in which they were created."""
        return [(e["message"], e["count"]) for e in self.events.values() if e["involvedObject"]["name"] == about]

    async def create(self, resource: AnyResource, namespace: str, body: bytes) -> bytes:
        await self._request(f"POST {resource.path(namespace)}")
        event = msgspec.json.decode(body)
        key = ObjectKey(namespace, event["metadata"]["name"])
        if key in self.events:
            raise AlreadyExists("there is one", code=409, reason="AlreadyExists")
        self.events[key] = event
        self._lose_answer()
        return body

    async def patch(self, resource: AnyResource, key: ObjectKey, body: bytes, *, content_type: str) -> bytes:
        assert content_type == "application/merge-patch+json"
        await self._request(f"PATCH {resource.path(key.namespace)}")
        if key not in self.events:
            raise NotFound("no such event", code=404, reason="NotFound")
        self.events[key].update(msgspec.json.decode(body))
        self._lose_answer()
        return body

    async def _request(self, line: str) -> None:
        self.requests.append(line)
        await asyncio.sleep(self.delay_s)
        if self.failures:
            raise self.failures.pop(0)
        if self.broken_by:
            raise self.broken_by

    def _lose_answer(self) -> None:
        if self.loses_answers:
            self.loses_answers -= 1
            raise TransportError("connection reset", sent=True)


class Drops(Counter[str]):
    def event_dropped(self, reason: str) -> None:
        self[reason] += 1


class World:
    def __init__(self, **kwargs: Any) -> None:
        self.server = EventServer()
        self.drops = Drops()
        self.recorder = EventRecorder(self.server, component=COMPONENT, now=self.now, instruments=self.drops, **kwargs)

    @staticmethod
    def now() -> datetime:
        return START + timedelta(seconds=asyncio.get_running_loop().time())

    async def sent(self) -> None:
        """Wait until nothing is left to send."""
        await self.recorder.flush(3600)
        assert len(self.recorder) == 0


@asynccontextmanager
async def recording(**kwargs: Any) -> AsyncIterator[World]:
    world = World(**kwargs)
    async with running(world.recorder.run()):
        yield world
