"""A TCP proxy between the controller and the API server, which cuts or stops all connections on request.

The proxy forwards bytes and does not look into TLS. It runs on its own event loop in its own thread.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CHUNK = 65536


class Network:
    """The connections of the controller. Any thread may call `cut` and `pause`."""

    def __init__(self, upstream_port: int) -> None:
        self.port = 0
        self._upstream_port = upstream_port
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()

    def cut(self) -> int:
        """Reset all connections. Return their number."""
        return asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(10)

    def pause(self, *, flowing: bool) -> None:
        """Stop forwarding bytes, or continue. The connections stay open."""
        self._loop.call_soon_threadsafe(self._flowing.set if flowing else self._flowing.clear)

    async def _cut(self) -> int:
        writers = tuple(self._writers)
        for writer in writers:
            _reset(writer)
        return len(writers) // 2

    async def _serve(self, client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        try:
            server, request = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        except OSError:
            _reset(answer)
            return
        self._writers |= {answer, request}
        try:
            # A cancelled handler would make asyncio log an error when the proxy stops.
            with suppress(asyncio.CancelledError):
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._forward(client, request))
                    group.create_task(self._forward(server, answer))
        finally:
            self._writers -= {answer, request}
            for writer in (answer, request):
                writer.transport.abort()

    async def _forward(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await source.read(CHUNK):
                await self._flowing.wait()
                target.write(chunk)
                await target.drain()
        target.close()

    def run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)

        async def start() -> asyncio.Server:
            return await asyncio.start_server(self._serve, "127.0.0.1", 0)

        server = self._loop.run_until_complete(start())
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        self._loop.run_forever()
        server.close()
        for task in (tasks := asyncio.all_tasks(self._loop)):
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with RST instead of FIN."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@contextmanager
def running_network(upstream_port: int) -> Iterator[Network]:
    network, ready = Network(upstream_port), threading.Event()
    thread = threading.Thread(target=network.run, args=(ready,), name="network", daemon=True)
    thread.start()
    if not ready.wait(10):
        raise RuntimeError("the proxy did not start")
    try:
        yield network
    finally:
        network.stop()
        thread.join(10)
