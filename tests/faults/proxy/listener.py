"""The listening socket of a fault proxy and its connections, each in a task."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from tests.faults.proxy.wire import Wire, reset_on_close


class Listener:
    """Accepts connections on one port of loopback. `serve` handles each connection until it returns."""

    def __init__(self, serve: Callable[[Wire], Awaitable[None]], tls: ssl.SSLContext) -> None:
        self.port = 0
        self.tls = tls
        self.wires: set[Wire] = set()
        self.tasks: set[asyncio.Task[Any]] = set()
        self._serve = serve
        self._socket: socket.socket | None = None
        self._handshakes: dict[asyncio.Task[Any] | None, socket.socket] = {}
        self._errors: list[BaseException] = []

    async def open(self) -> None:
        """Listen on a free port."""
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._socket.setblocking(False)
        self.port = self._socket.getsockname()[1]
        # A cancelled `loop.sock_accept` can lose a connection. So the loop calls `accept` directly.
        asyncio.get_running_loop().add_reader(self._socket, self._accept, self._socket)

    def reset(self) -> None:
        for wire in tuple(self.wires):
            wire.reset()
        for task, sock in self._handshakes.items():
            reset_on_close(sock)
            if task:
                task.cancel()

    async def close(self) -> None:
        """End all connections. Raises an ExceptionGroup if an error of the proxy has ended a connection."""
        if self._socket:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)
        self.reset()
        if self._errors:
            raise BaseExceptionGroup("the fault proxy failed", self._errors)

    def _accept(self, listening: socket.socket) -> None:
        try:
            sock, _ = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        sock.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._handle(sock), name="fault proxy's connection")
        self._handshakes[task] = sock
        self.tasks.add(task)
        task.add_done_callback(self._done)

    async def _handle(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            wire = await Wire.accept(sock, self.tls)
        except OSError:  # an ssl.SSLError, too: the client does not trust the certificate
            return
        finally:
            del self._handshakes[asyncio.current_task()]
        self.wires.add(wire)
        try:
            await self._serve(wire)
        finally:
            if not wire.open:
                self.wires.discard(wire)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if sock := self._handshakes.pop(task, None):
            sock.close()  # the task was cancelled before its first step
        if not task.cancelled() and (error := task.exception()):
            self._errors.append(error)
