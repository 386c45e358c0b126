"""The HTTP server for `/healthz`, `/livez`, `/readyz`, `/metrics` and, if enabled, `/debug/*`.

The answers have the format of controller-runtime. Probes use HTTP and need no authorization. `open` binds both
addresses before the process does anything else. So if a port is in use, the process stops at once.
"""

import asyncio
import errno
import gzip
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from aiohttp import web

from controller.config.types import Address
from controller.metrics.registry import Page
from controller.server.authorization import Denial
from controller.server.certificates import Certificate, CertificateError, ServerTls
from controller.server.connections import LIMITS, MAX_CONNECTIONS, Connections, answer_in_time, server_log

Check: TypeAlias = Callable[[], str | None]
"""A health check: returns None, or the reason why it fails. Each probe calls it on the event loop."""

Checks: TypeAlias = Mapping[str, Check]
"""The checks by name. An answer lists them in this order. Checks may be added while the server runs."""

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.Response]]

SHUTDOWN_TIMEOUT_S = 1.0


class BindError(Exception):
    """The server cannot listen on an address. `str()` is one line with the address, the reason and the flag."""


class Secure(NamedTuple):
    """Metrics over HTTPS with authorization. `check` gets the `Authorization` header, and returns None or a denial."""

    certificate: Certificate
    check: Callable[[str], Awaitable[Denial | None]]


class HttpServer:
    """The HTTP server of the process, with probes on the address `health` and metrics on `metrics`, if not None."""

    def __init__(
        self,
        *,
        health: Address | None,
        metrics: Address | None,
        probes: Mapping[str, Checks],
        page: Callable[[], Page],
        secure: Secure | None = None,
        debug: Mapping[str, Callable[[], str]] | None = None,
        admin: Iterable[web.RouteDef] = (),
    ) -> None:
        """`probes` has the checks by endpoint, `debug` the texts by `/debug/NAME`, `admin` more routes of `health`."""
        routes = {f"/debug/{name}": _answer_text(text) for name, text in (debug or {}).items()}
        for endpoint, checks in probes.items():
            routes |= _check_routes(endpoint, checks)
        serve_page = _answer_page(page)
        if secure is not None:
            serve_page = _with_authorization(serve_page, secure.check)
        probing = [web.get(path, handler) for path, handler in routes.items()]
        self.health = _Listener(health, [*probing, *admin], flag="--health-probe-bind-address")
        self.metrics = _Listener(
            metrics,
            [web.get("/metrics", serve_page)],
            flag="--metrics-bind-address",
            certificate=None if secure is None else secure.certificate,
        )

    async def open(self) -> None:
        """Listen on both addresses and answer requests. After a BindError, the server listens on neither address."""
        try:
            await self.health.open()
            await self.metrics.open()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await self.health.close()
        await self.metrics.close()


class _Listener:
    """A server on one address with its routes. It uses HTTPS if a certificate is given, and HTTP otherwise."""

    def __init__(
        self,
        address: Address | None,
        routes: Sequence[web.RouteDef],
        *,
        flag: str,
        certificate: Certificate | None = None,
    ) -> None:
        self._address = address
        self._routes = routes
        self._flag = flag
        self._certificate = certificate
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._connections: Connections | None = None

    @property
    def bound(self) -> Address | None:
        """The address of the open server, or None. If the configured port is 0, the address has the chosen port."""
        if self._server is None or not self._server.sockets:
            return None
        host, port = self._server.sockets[0].getsockname()[:2]
        return Address(host, port)

    async def open(self) -> None:
        if self._address is None or self._runner is not None:
            return
        app = web.Application(middlewares=[answer_in_time])
        app.add_routes(self._routes)
        self._runner = web.AppRunner(
            app, access_log=None, logger=server_log(), shutdown_timeout=SHUTDOWN_TIMEOUT_S, **LIMITS
        )
        await self._runner.setup()
        try:
            tls = None if self._certificate is None else ServerTls(self._certificate).context
            assert self._runner.server is not None
            self._connections = Connections(self._runner.server, tls)
            self._server = await _listen(self._connections.accept, self._address)
        except CertificateError as error:
            message = f"cannot serve HTTPS on {self._address}: {error}; --metrics-cert-file and --metrics-key-file"
            raise BindError(f"{message} name a certificate and its key") from error
        except OSError as error:
            why = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else error.strerror
            message = f"cannot listen on {self._address}: {why}; {self._flag} sets another address, or 0 for none"
            raise BindError(message) from error

    async def close(self) -> None:
        runner, self._runner = self._runner, None
        server, self._server = self._server, None
        if server is not None:
            server.close()
        if runner is not None:
            await runner.cleanup()
        if self._connections is not None:
            self._connections.end()


async def _listen(make_protocol: Callable[[], asyncio.Protocol], address: Address) -> asyncio.Server:
    loop = asyncio.get_running_loop()

    async def listen(host: str | None) -> asyncio.Server:
        return await loop.create_server(make_protocol, host, address.port, backlog=MAX_CONNECTIONS)

    try:
        return await listen(address.host or None)
    except OSError as error:
        # If no host is given, the server listens on IPv4 and IPv6. IPv6 fails if the kernel supports it but has no
        # IPv6 address. The server then listens only on IPv4.
        if address.host or error.errno != errno.EADDRNOTAVAIL:
            raise
        return await listen("0.0.0.0")


def run_checks(
    endpoint: str, checks: Checks, *, excluded: Collection[str] = (), verbose: bool = False
) -> tuple[bool, str]:
    """Return whether all checks passed, and the answer in the format of controller-runtime."""
    lines = []
    passed = True
    for name, check in checks.items():
        if name in excluded:
            lines.append(f"[+]{name} excluded: ok")
            continue
        failure = _run_check(check)
        passed = passed and failure is None
        lines.append(f"[+]{name} ok" if failure is None else f"[-]{name} failed: {failure}")
    if passed and not verbose:
        return True, "ok"
    unknown = ", ".join(f'"{name}"' for name in excluded if name not in checks)
    if unknown:
        lines.append(f"warn: some health checks cannot be excluded: no matches for {unknown}")
    lines.append(f"{endpoint} check {'passed' if passed else 'failed'}")
    return passed, "\n".join(lines) + "\n"


def _run_check(check: Check) -> str | None:
    try:
        return check()
    except Exception as error:
        return f"the check raised {error!r}"


def _check_routes(endpoint: str, checks: Checks) -> dict[str, Handler]:
    async def answer(request: web.Request) -> web.Response:
        # The check `ping` always passes. It only shows that the process answers.
        chosen: Checks = {"ping": lambda: None, **checks}
        name = request.match_info.get("name")
        if name is not None:
            if name not in chosen:
                raise web.HTTPNotFound(text="this check does not exist\n")
            chosen = {name: chosen[name]}
        passed, text = run_checks(
            endpoint, chosen, excluded=request.query.getall("exclude", []), verbose="verbose" in request.query
        )
        return _text(text, status=200 if passed else 500)

    return {f"/{endpoint}": answer, f"/{endpoint}/{{name}}": answer}


def _answer_page(page: Callable[[], Page]) -> Handler:
    # Without this lock, many scrapes at once would use all threads, and the client needs a thread for each DNS query.
    rendering = asyncio.Lock()

    async def answer(request: web.Request) -> web.Response:
        use_gzip = _accepts_gzip(request.headers.get("Accept-Encoding", ""))
        accept = request.headers.get("Accept", "")

        def render(current: Page) -> tuple[bytes, str]:
            body, content_type = current.render(accept)
            return (gzip.compress(body, compresslevel=1) if use_gzip else body), content_type

        # A page with ten thousand objects takes about 200 ms, so a thread renders the page. An idle process needs 1 ms.
        async with rendering:
            body, content_type = await asyncio.to_thread(render, page())
        headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
        if use_gzip:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=body, headers=headers)

    return answer


def _with_authorization(handler: Handler, check: Callable[[str], Awaitable[Denial | None]]) -> Handler:

    async def answer(request: web.Request) -> web.Response:
        denial = await check(request.headers.get("Authorization", ""))
        if denial is None:
            return await handler(request)
        response = _text(f"{denial.why}\n", status=denial.status)
        if denial.status == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
        return response

    return answer


def _answer_text(make_text: Callable[[], str]) -> Handler:
    async def answer(_request: web.Request) -> web.Response:
        return _text(make_text())

    return answer


def _text(text: str, *, status: int = 200) -> web.Response:
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return web.Response(text=text, status=status, headers=headers)


def _accepts_gzip(accept_encoding: str) -> bool:
    for part in accept_encoding.split(","):
        coding, _, weight = part.partition(";")
        if coding.strip().lower() in {"gzip", "*"}:
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False
