"""A reverse proxy for the real API server. The proxy can lose answers, delay or cut watches, and refuse requests.

with fault_proxy(plane.url, plane.ca) as proxy:
        proxy.lose("POST", "virtualmachineinstances", every=3)
        run_the_controller(proxy.write_kubeconfig(path, token))

The proxy runs in a separate thread, for tests that run the controller as a process. A refused request does not reach
the server. Every other request reaches the server, so a write whose answer is lost has its effect. Without a fault the
proxy changes nothing.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
import trustme
import yaml
from aiohttp import web
from yarl import URL

from sandbox.processes import free_ports

HOP_BY_HOP = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding"})
TICK_S = 0.02


class Refusal:
    """An error that the proxy sends as an answer, and the remaining number of such answers."""

    def __init__(self, method: str, plural: str, status: int, retry_after: str, times: int) -> None:
        self.method = method
        self.plural = plural
        self.status = status
        self.retry_after = retry_after
        self.left = times

    def answer(self) -> web.Response:
        message = {"kind": "Status", "status": "Failure", "code": self.status, "message": "refused by the proxy"}
        headers = {"Retry-After": self.retry_after} if self.retry_after else {}
        return web.Response(
            status=self.status, headers=headers, text=json.dumps(message), content_type="application/json"
        )


class FaultProxy:
    """The faults. Any thread may set them. The proxy reads the faults for each request and each piece of a watch."""

    def __init__(self, upstream: str, upstream_ca: Path, authority: Path, port: int) -> None:
        self.url = f"https://127.0.0.1:{port}"
        self.port = port
        self.lost: list[str] = []
        """The successful writes without an answer: method and path."""

        self.refused: list[tuple[float, str]] = []
        """The refused requests, with the time on the proxy's clock."""

        self.cut = 0
        """The number of watch lines that were cut in the middle."""

        self._upstream = upstream
        self._upstream_ca = upstream_ca
        self._authority = authority
        self._losing: dict[tuple[str, str], Callable[[int], bool]] = {}
        self._seen: dict[tuple[str, str], int] = {}
        self._refusals: list[Refusal] = []
        self._lag_s: dict[str, float] = {}
        self._to_cut: set[str] = set()

    def lose(self, method: str, plural: str, *, every: int) -> None:
        """Lose the answer of the first successful write of this kind, and then of every `every`-th write. With
        `every=0`, lose no more answers.
        """
        if every:
            self._losing[method, plural] = lambda number: number % every == 0
        else:
            self._losing.pop((method, plural), None)

    def refuse(self, method: str, plural: str, status: int, *, times: int, retry_after: str = "") -> None:
        """Answer the next requests of this kind with an error. These requests do not reach the server."""
        self._refusals.append(Refusal(method, plural, status, retry_after, times))

    def delay_watch(self, plural: str, seconds: float) -> None:
        """Delay the data of a watch, so that its client has a stale cache. 0 ends the delay and sends all data."""
        self._lag_s[plural] = seconds

    def cut_watch(self, plural: str) -> None:
        """Break the watch in the middle of its next line."""
        self._to_cut.add(plural)

    def write_kubeconfig(self, path: Path, token: str) -> Path:
        cluster = {"server": self.url, "certificate-authority": str(self._authority)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxied", "cluster": cluster}],
            "users": [{"name": "herder", "user": {"token": token}}],
            "contexts": [{"name": "proxied", "context": {"cluster": "proxied", "user": "herder"}}],
            "current-context": "proxied",
        }
        path.write_text(yaml.safe_dump(config))
        return path

    @asynccontextmanager
    async def serving(self, certificate: ssl.SSLContext) -> AsyncIterator[None]:
        trust = ssl.create_default_context(cafile=str(self._upstream_ca))
        connector = aiohttp.TCPConnector(ssl=trust, limit=0)
        limits = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False, timeout=limits) as session:

            async def handle(request: web.BaseRequest) -> web.StreamResponse:
                return await self._handle(request, session)

            runner = web.ServerRunner(web.Server(handle), handle_signals=False, shutdown_timeout=0.1)
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", self.port, ssl_context=certificate).start()
                yield
            finally:
                await runner.cleanup()

    async def _handle(self, request: web.BaseRequest, session: aiohttp.ClientSession) -> web.StreamResponse:
        body = await request.read()
        plural = _plural_of(request.path)
        for refusal in self._refusals:
            if refusal.left and (refusal.method, refusal.plural) == (request.method, plural):
                refusal.left -= 1
                self.refused.append((asyncio.get_running_loop().time(), f"{request.method} {request.path}"))
                return refusal.answer()
        url = URL(self._upstream + request.raw_path, encoded=True)
        headers = {name: text for name, text in request.headers.items() if name.lower() not in HOP_BY_HOP}
        async with session.request(request.method, url, data=body or None, headers=headers) as answer:
            if "watch" in request.query:
                return await self._relay_watch(request, answer, plural)
            content = await answer.read()
        if answer.status < 300 and self._loses(request.method, plural):
            self.lost.append(f"{request.method} {request.path}")
            _break_off(request)
        return web.Response(status=answer.status, body=content, headers=_end_to_end(answer))

    def _loses(self, method: str, plural: str) -> bool:
        number = self._seen.get((method, plural), 0)
        self._seen[method, plural] = number + 1
        return (method, plural) in self._losing and self._losing[method, plural](number)

    async def _relay_watch(
        self, request: web.BaseRequest, answer: aiohttp.ClientResponse, plural: str
    ) -> web.StreamResponse:
        relayed = web.StreamResponse(status=answer.status, headers=_end_to_end(answer))
        await relayed.prepare(request)
        now = asyncio.get_running_loop().time
        arrived: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def read() -> None:
            async for chunk in answer.content.iter_any():
                arrived.put_nowait((now(), chunk))
            arrived.put_nowait((now(), b""))

        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read())
            while True:
                since, chunk = await arrived.get()
                while now() < since + self._lag_s.get(plural, 0.0):
                    await asyncio.sleep(TICK_S)
                if not chunk:
                    break
                if plural in self._to_cut:
                    self._to_cut.discard(plural)
                    self.cut += 1
                    await relayed.write(chunk[: len(chunk) // 2])
                    _break_off(request)
                    break
                await relayed.write(chunk)
            reading.cancel()
        return relayed


@contextmanager
def fault_proxy(upstream: str, upstream_ca: Path) -> Iterator[FaultProxy]:
    """Run the proxy while the block runs."""
    authority = trustme.CA(organization_name="vmherd tests")
    certificate = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(certificate)
    with tempfile.TemporaryDirectory() as directory:
        trusted = Path(directory) / "ca.crt"
        authority.cert_pem.write_to_path(str(trusted))
        proxy = FaultProxy(upstream, upstream_ca, trusted, free_ports(1)[0])
        started: Future[Callable[[], None]] = Future()
        thread = threading.Thread(target=asyncio.run, args=(_serve(proxy, certificate, started),), daemon=True)
        thread.start()
        stop = started.result(30)
        try:
            yield proxy
        finally:
            stop()
            thread.join(30)


async def _serve(proxy: FaultProxy, certificate: ssl.SSLContext, started: Future[Callable[[], None]]) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()

    def stop() -> None:
        loop.call_soon_threadsafe(stopped.set)

    try:
        async with proxy.serving(certificate):
            started.set_result(stop)
            await stopped.wait()
    except BaseException as error:
        if not started.done():
            started.set_exception(error)
        raise


def _plural_of(path: str) -> str:
    """The plural of the kind in a path, or "" if the path has none."""
    parts = path.strip("/").split("/")
    parts = parts[3:] if parts[0] == "apis" else parts[2:]
    if len(parts) > 2 and parts[0] == "namespaces":
        parts = parts[2:]
    return "/".join((parts[0], *parts[2:])) if parts else ""


def _end_to_end(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name: text for name, text in answer.headers.items() if name.lower() not in HOP_BY_HOP}


def _break_off(request: web.BaseRequest) -> None:
    """Close the connection without an answer."""
    if request.transport is not None:
        request.transport.abort()
