"""Processes that compete for a lease, and the server that keeps it, in memory and on the loop's clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from controller.leaderelection.elector import LeaderElector
from informers.errors import AlreadyExists, ApiError, Conflict, NotFound, TransportError

LEASES = "/apis/coordination.k8s.io/v1/namespaces/here/leases"
LEASE = f"{LEASES}/vmherd"


def now() -> float:
    return asyncio.get_running_loop().time()


class LeaseServer:
    """Keeps leases as the API server does: versions that grow, conflicts, merge patches. Three verbs, in memory."""

    def __init__(self) -> None:
        self.leases: dict[str, dict[str, Any]] = {}
        self._version = 0

    def handle(self, method: str, path: str, body: bytes | None) -> bytes:
        match method:
            case "GET":
                answer = self._get(path)
            case "POST":
                answer = self._post(path, json.loads(body or b""))
            case "PATCH":
                answer = self._patch(path, json.loads(body or b""))
            case _:
                raise AssertionError(method)
        return json.dumps(answer).encode()

    def _get(self, path: str) -> dict[str, Any]:
        if path not in self.leases:
            raise NotFound(f"leases {path} not found", code=404)
        return self.leases[path]

    def _post(self, path: str, lease: dict[str, Any]) -> dict[str, Any]:
        path = f"{path}/{lease['metadata']['name']}"
        if path in self.leases:
            raise AlreadyExists(f"leases {path} already exists", code=409)
        return self._store(path, lease, uid=f"uid-{self._version}")

    def _patch(self, path: str, patch: dict[str, Any]) -> dict[str, Any]:
        lease = self._get(path)
        for field, wanted in patch.get("metadata", {}).items():
            if field in ("uid", "resourceVersion") and lease["metadata"][field] != wanted:
                raise Conflict(f"the object has been modified: {field}", code=409)
        return self._store(path, merge(lease, patch), uid=lease["metadata"]["uid"])

    def _store(self, path: str, lease: dict[str, Any], *, uid: str) -> dict[str, Any]:
        if self.leases.get(path) != lease:
            self._version += 1
            lease["metadata"] |= {"uid": uid, "resourceVersion": str(self._version)}
            self.leases[path] = lease
        return self.leases[path]

    @property
    def record(self) -> dict[str, Any]:
        return self.leases[LEASE]["spec"]

    def edit(self, **patch: Any) -> None:
        """Change the lease as a person would, whatever its version."""
        self._patch(LEASE, patch)


def merge(value: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """RFC 7396, as far as objects need it."""
    merged = dict(value)
    for key, change in patch.items():
        if change is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key, {}), change) if isinstance(change, dict) else change
    return merged


class Line:
    """One process's connection to the server, and what can go wrong with it."""

    def __init__(self, server: LeaseServer) -> None:
        self._server = server
        self.latency_s = 0.01
        self.trouble = ""
        self.error: ApiError | None = None
        self.log: list[tuple[float, str]] = []

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,
    ) -> bytes:
        self.log.append((now(), method))
        if self.error is not None:
            raise self.error
        if self.trouble == "refused":
            raise TransportError("connection refused", sent=False)
        if self.trouble == "hangs":
            await asyncio.Event().wait()
        assert content_type == ("application/merge-patch+json" if method == "PATCH" else "application/json")
        await asyncio.sleep(self.latency_s)
        answer = self._server.handle(method, path, body)
        if self.trouble == "loses answers":
            await asyncio.Event().wait()
        await asyncio.sleep(self.latency_s)
        return answer


class Gauge:
    """What the elector reports."""

    def __init__(self) -> None:
        self.values: list[tuple[str, bool]] = []

    def leading(self, lease: str, *, master: bool) -> None:
        self.values.append((lease, master))


class Process:
    """A candidate with its own line, that leads for as long as it can and may."""

    def __init__(self, server: LeaseServer, name: str, **kwargs: Any) -> None:
        self.line = Line(server)
        self.gauge = Gauge()
        self.stop = asyncio.Event()
        self.elector = LeaderElector(
            self.line,
            **{
                "namespace": "here",
                "name": "vmherd",
                "identity": name,
                "wall_clock": lambda: datetime(2026, 11, 21, tzinfo=UTC) + timedelta(seconds=now()),
                "instruments": self.gauge,
                "chance": lambda: 0.5,
                **kwargs,
            },
        )
        self.led_from = self.led_to = -1.0
        self.on_election: Callable[[], None] = lambda: None

    async def run(self) -> bool:
        """Lead until told to stop. Return whether it ever came to that."""
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


async def settle(*tasks: asyncio.Task[Any]) -> list[Any]:
    """Cancel what still runs, and return how each ended."""
    for task in tasks:
        task.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)
