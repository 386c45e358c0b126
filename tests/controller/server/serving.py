"""An HTTP server on free ports of loopback."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry

from controller.config.types import Address
from controller.metrics.registry import Metrics
from controller.server.authorization import Denial
from controller.server.certificates import SelfSignedCertificate
from controller.server.http import Checks, HttpServer, Secure

ANY_PORT = Address("127.0.0.1", 0)


async def allow_all(_: str) -> None:
    return None


def https(check: Callable[[str], Awaitable[Denial | None]] = allow_all) -> Secure:
    return Secure(SelfSignedCertificate(lambda: datetime.now(UTC)), check)


def make_server(*, live: Checks | None = None, ready: Checks | None = None, **settings: Any) -> HttpServer:
    """`live` and `ready` are the checks of the probes. The other settings are those of `HttpServer`."""
    live, ready = {} if live is None else live, {} if ready is None else ready
    probes = {"healthz": live, "livez": live, "readyz": ready}
    usual = {"health": ANY_PORT, "metrics": ANY_PORT, "page": Metrics(CollectorRegistry()).page}
    return HttpServer(probes=probes, **{**usual, **settings})


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[HttpServer]:
    server = make_server(**settings)
    await server.open()
    try:
        yield server
    finally:
        await server.close()
