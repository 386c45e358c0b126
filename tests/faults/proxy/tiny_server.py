"""A tiny server behind the fault proxy, and a client in front of it, for tests of the proxy itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import ClientSession, ClientTimeout, TCPConnector, web
from aiohttp.test_utils import TestServer

from tests.faults.proxy.proxy import FaultProxy, fault_proxy


class TinyServer:
    """Records its requests. A watch is answered with the lines that the test sends."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self._watch = web.StreamResponse()
        self._ended = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        self.requests.append(request.raw_path)
        if "watch" not in request.query:
            return web.json_response({"kind": "Thing"})
        await self._watch.prepare(request)
        await self._ended.wait()
        return self._watch

    async def send(self, *lines: bytes) -> None:
        """Send lines to the watch."""
        for line in lines:
            await self._watch.write(line)

    def end(self) -> None:
        """End the watch with a complete answer."""
        self._ended.set()


@asynccontextmanager
async def proxied() -> AsyncIterator[tuple[TinyServer, FaultProxy, ClientSession]]:
    """A tiny server, a proxy in front of it, and a client of the proxy."""
    server, app = TinyServer(), web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    async with (
        asyncio.timeout(20),
        TestServer(app) as listening,
        fault_proxy(str(listening.make_url("")).rstrip("/")) as proxy,
        ClientSession(proxy.url, timeout=ClientTimeout(5), connector=TCPConnector(ssl=False)) as client,
    ):
        try:
            yield server, proxy, client
        finally:
            server.end()
