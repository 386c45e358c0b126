"""A fake HTTP server on loopback for tests of the client. It simulates failures of a server or a network.

It is not an API server. It sends the answers that the test lists, in order, and records the requests.
"""

import asyncio
import json
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import trustme

from informers.http.client import ApiClient, open_client
from informers.http.configuration import load_credentials
from tests.informers.http.kubectl.cases import document


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Behavior: TypeAlias = Callable[[asyncio.StreamWriter], Awaitable[None]]
Answer: TypeAlias = bytes | Behavior
Handler: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

EXEC_API = "client.authentication.k8s.io/v1"
REASONS = {200: "OK", 401: "Unauthorized", 429: "Too Many Requests", 503: "Service Unavailable"}


def answer(code: int = 200, body: Any = None, **headers: str) -> bytes:
    """A complete HTTP answer. Keyword arguments are headers with underscores: `retry_after="1"`."""
    content = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
    lines = [f"HTTP/1.1 {code} {REASONS.get(code, 'Other')}", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join((*lines, "", "")).encode() + content


async def cut(writer: asyncio.StreamWriter) -> None:
    """Reset the connection without an answer."""
    writer.transport.abort()


async def hang(writer: asyncio.StreamWriter) -> None:
    """Accept the request and never answer."""
    await asyncio.Event().wait()


def chunked(*chunks: bytes, then: Behavior | None = None) -> Behavior:
    """A watch that sends chunks one by one. After the last chunk, the connection closes, or `then` happens."""

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for chunk in chunks:
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await writer.drain()
        if then is not None:
            await then(writer)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    return send


def when(event: asyncio.Event, then: bytes) -> Behavior:
    """Send the answer after the test has set `event`."""

    async def send(writer: asyncio.StreamWriter) -> None:
        await event.wait()
        writer.write(then)

    return send


class FaultServer:
    """Sends its answers in order, and repeats the last answer."""

    def __init__(self, *answers: Answer) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self.busy = 0
        self.busiest = 0
        self.connected: Callable[[], None] = lambda: None
        self._answers = list(answers) or [answer()]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.connected()
        while True:
            self.requests.append(await _read(reader))
            self.busy += 1
            self.busiest = max(self.busy, self.busiest)
            reply = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
            try:
                if isinstance(reply, bytes):
                    writer.write(reply)
                else:
                    await reply(writer)
            finally:
                self.busy -= 1


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    method, path, _ = head[0].split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    return Request(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))


@asynccontextmanager
async def port_of(serve: Handler, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve until the block ends, and yield the port. The tasks of the connections end with the block."""
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        # A client can leave at any time, and the end of the block ends the task.
        with suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            await serve(reader, writer)
        writer.transport.abort()

    listener = await asyncio.start_server(accept, host, 0, ssl=tls)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def listening(server: FaultServer, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve until the block ends, and yield the server's address."""
    async with port_of(server.serve, tls=tls) as port:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"


def write_kubeconfig(path: Path, server: str, user: dict[str, Any] | None = None, **cluster: Any) -> Path:
    """Write a kubeconfig with one cluster, one user and one context, each of the name `a`."""
    user = {"token": "secret"} if user is None else user
    path.write_text(document(user, cluster, server=server, trusted=False))
    return path


def script(text: str, **settings: Any) -> dict[str, Any]:
    """The user of a kubeconfig with an exec plugin: a script of sh."""
    exec_ = {"apiVersion": EXEC_API, "command": "sh", "args": ["-c", text], "interactiveMode": "IfAvailable"}
    return {"exec": {**exec_, **settings}}


def credential(token: str) -> str:
    """What an exec plugin prints."""
    return json.dumps({"apiVersion": EXEC_API, "kind": "ExecCredential", "status": {"token": token}})


@asynccontextmanager
async def client_of(
    server: FaultServer, tmp_path: Path, *, user: dict[str, Any] | None = None, tls: bool = False, **kwargs: Any
) -> AsyncIterator[ApiClient]:
    """Start the server, and yield a client. The client reads the server's address from a kubeconfig.

    Only with `tls`, the client has credentials.
    """
    authority = trustme.CA() if tls else None
    trust = {"certificate-authority-data": b64encode(authority.cert_pem.bytes()).decode()} if authority else {}
    async with listening(server, tls=tls_of(authority) if authority else None) as url:
        credentials = await load_credentials(str(write_kubeconfig(tmp_path / "kubeconfig", url, user, **trust)))
        async with open_client(credentials, **{"user_agent": "tests/1", **kwargs}) as client:
            yield client


def tls_of(authority: trustme.CA) -> ssl.SSLContext:
    """A TLS context for a server, with a new certificate that `authority` signs."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context
