"""Answers probes and scrapes over HTTP: `/healthz`, `/livez`, `/readyz`, `/metrics`, and on request `/debug/*`.

`/healthz` and `/livez` are the same: whether this process works, whatever the API server does. `/readyz` tells whether
it is of use. Both answer as controller-runtime's do: 200 and "ok", or 500 and the list of checks; with `?verbose` the
list in any case; `?exclude=NAME` leaves a check out, and `/readyz/NAME` asks for one alone.

Probes and metrics have an address each, or none. `open` binds them, so that a port that is taken stops the start
before anything has happened. Probes are for everybody, over HTTP; metrics may be for those alone whom a guard lets in,
over HTTPS.
"""

from __future__ import annotations

import asyncio
import errno
import gzip
import os
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from aiohttp import web

from controller.config.types import Address
from controller.metrics.page import Page
from controller.server.authorization import Denial
from controller.server.certificates import Certificate, CertificateError, ServerTls

Check: TypeAlias = Callable[[], str | None]
"""Says why not, or None when all is well. Called on the event loop, for each probe."""

Checks: TypeAlias = Mapping[str, Check]
"""By name, in the order in which they are shown. May grow while the server runs."""

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.Response]]

SHUTDOWN_TIMEOUT_S = 1.0
"""For answers on their way; a probe or a scrape that is cut off is simply repeated."""


class BindError(Exception):
    """An address cannot be listened on. `str()` is one line that says which, why, and what to change."""


class Secure(NamedTuple):
    """Metrics over HTTPS, for those whom `check` lets in; it is given what they sent as `Authorization`."""

    certificate: Certificate
    check: Callable[[str], Awaitable[Denial | None]]


class HttpServer:
    """The server of a process. `health` and `metrics` are where it listens; None serves that part nowhere."""

    def __init__(
        self,
        *,
        health: Address | None,
        metrics: Address | None,
        live: Checks,
        ready: Checks,
        page: Callable[[], Page],
        secure: Secure | None = None,
        debug: Mapping[str, Callable[[], str]] | None = None,
    ) -> None:
        """`debug` adds `/debug/NAME` to the probes, each with the text that its function gives."""
        probes = {
            **_check_routes("healthz", live),
            **_check_routes("livez", live),
            **_check_routes("readyz", ready),
            **{f"/debug/{name}": _answer_text(text) for name, text in (debug or {}).items()},
        }
        show = _answer_page(page) if secure is None else _guarded(_answer_page(page), secure.check)
        self._health = _Listener(health, probes, flag="--health-probe-bind-address")
        self._metrics = _Listener(
            metrics,
            {"/metrics": show},
            flag="--metrics-bind-address",
            certificate=None if secure is None else secure.certificate,
        )

    @property
    def health_address(self) -> Address | None:
        """Where probes are answered, with the port that was found where 0 was asked for; None while nowhere."""
        return self._health.bound

    @property
    def metrics_address(self) -> Address | None:
        """Where `/metrics` is served, likewise."""
        return self._metrics.bound

    async def open(self) -> None:
        """Listen and answer from now on. Raises BindError, and then listens nowhere."""
        try:
            await self._health.open()
            await self._metrics.open()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Listen no more, and let go of every connection."""
        await self._health.close()
        await self._metrics.close()


class _Listener:
    """One address and its routes, over HTTPS where there is a certificate."""

    def __init__(
        self,
        address: Address | None,
        routes: Mapping[str, Handler],
        *,
        flag: str,
        certificate: Certificate | None = None,
    ) -> None:
        self._address = address
        self._routes = routes
        self._flag = flag
        self._certificate = certificate
        self._runner: web.AppRunner | None = None

    @property
    def bound(self) -> Address | None:
        if self._runner is None or not self._runner.addresses:
            return None
        host, port = self._runner.addresses[0][:2]
        return Address(host, port)

    async def open(self) -> None:
        if self._address is None or self._runner is not None:
            return
        app = web.Application()
        app.add_routes([web.get(path, handler) for path, handler in self._routes.items()])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
        await self._runner.setup()
        try:
            tls = None if self._certificate is None else ServerTls(self._certificate).context
            await self._listen(self._runner, self._address, tls)
        except CertificateError as error:
            message = f"cannot serve HTTPS on {self._address}: {error}; --metrics-cert-file and --metrics-key-file"
            raise BindError(f"{message} name a certificate and its key") from error
        except OSError as error:
            why = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else error.strerror
            message = f"cannot listen on {self._address}: {why}; {self._flag} sets another address, or 0 for none"
            raise BindError(message) from error

    async def close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    @staticmethod
    async def _listen(runner: web.AppRunner, address: Address, tls: ssl.SSLContext | None) -> None:
        try:
            await web.TCPSite(runner, address.host or None, address.port, ssl_context=tls).start()
        except OSError as error:
            # Every interface means IPv6 too, and a kernel may know the protocol and have no address of it.
            if address.host or error.errno != errno.EADDRNOTAVAIL:
                raise
            await web.TCPSite(runner, "0.0.0.0", address.port, ssl_context=tls).start()


def verdict(
    endpoint: str, checks: Checks, *, excluded: Collection[str] = (), verbose: bool = False
) -> tuple[bool, str]:
    """Make all checks, and say whether all is well, in the words that controller-runtime has for it."""
    lines = []
    well = True
    for name, check in checks.items():
        if name in excluded:
            lines.append(f"[+]{name} excluded: ok")
            continue
        trouble = _make(check)
        well = well and trouble is None
        lines.append(f"[+]{name} ok" if trouble is None else f"[-]{name} failed: {trouble}")
    if well and not verbose:
        return True, "ok"
    unknown = ", ".join(f'"{name}"' for name in excluded if name not in checks)
    if unknown:
        lines.append(f"warn: some health checks cannot be excluded: no matches for {unknown}")
    lines.append(f"{endpoint} check {'passed' if well else 'failed'}")
    return well, "\n".join(lines) + "\n"


def _pong() -> str | None:
    """Whoever answers is there."""
    return None


def _make(check: Check) -> str | None:
    try:
        return check()
    except Exception as error:
        return f"the check itself failed: {error!r}"


def _check_routes(endpoint: str, checks: Checks) -> dict[str, Handler]:
    async def answer(request: web.Request) -> web.Response:
        chosen: Checks = {"ping": _pong, **checks}
        name = request.match_info.get("name")
        if name is not None:
            if name not in chosen:
                raise web.HTTPNotFound(text="there is no such check\n")
            chosen = {name: chosen[name]}
        well, text = verdict(
            endpoint, chosen, excluded=request.query.getall("exclude", []), verbose="verbose" in request.query
        )
        return _text(text, status=200 if well else 500)

    return {f"/{endpoint}": answer, f"/{endpoint}/{{name}}": answer}


def _answer_page(page: Callable[[], Page]) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        zipped = _takes_gzip(request.headers.get("Accept-Encoding", ""))
        accept = request.headers.get("Accept", "")
        taken = page()

        def render() -> tuple[bytes, str]:
            body, content_type = taken.render(accept)
            return (gzip.compress(body, compresslevel=1) if zipped else body), content_type

        # Rendering takes a millisecond at rest, and a fifth of a second with ten thousand objects.
        body, content_type = await asyncio.to_thread(render)
        headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
        if zipped:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=body, headers=headers)

    return answer


def _guarded(show: Handler, check: Callable[[str], Awaitable[Denial | None]]) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        denial = await check(request.headers.get("Authorization", ""))
        if denial is None:
            return await show(request)
        refusal = _text(f"{denial.why}\n", status=denial.status)
        if denial.status == 401:
            refusal.headers["WWW-Authenticate"] = "Bearer"
        return refusal

    return answer


def _answer_text(make_text: Callable[[], str]) -> Handler:
    async def answer(_request: web.Request) -> web.Response:
        return _text(make_text())

    return answer


def _text(text: str, *, status: int = 200) -> web.Response:
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return web.Response(text=text, status=status, headers=headers)


def _takes_gzip(accept_encoding: str) -> bool:
    for part in accept_encoding.split(","):
        coding, _, weight = part.partition(";")
        if coding.strip().lower() in {"gzip", "*"}:
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


class QueueState(Protocol):
    """What a work queue tells about itself."""

    @property
    def name(self) -> str: ...

    def __len__(self) -> int: ...

    def oldest_waiting_s(self, now: float) -> float: ...

    def longest_s(self, now: float) -> float: ...


def describe_tasks() -> str:
    """Every task and where it waits: `/debug/tasks`. On the event loop only."""
    lines = []
    for task in sorted(asyncio.all_tasks(), key=asyncio.Task.get_name):
        lines.append(task.get_name())
        # A task's own get_stack shows the outermost frame alone; what it waits for is at the other end.
        waiting: object = task.get_coro()
        while frame := getattr(waiting, "cr_frame", None):
            lines.append(f"    {frame.f_code.co_qualname} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})")
            waiting = getattr(waiting, "cr_await", None)
    return "\n".join(lines) + "\n"


def describe_queues(queues: Iterable[QueueState], now: float) -> str:
    """Every work queue in a line: `/debug/queues`."""
    return "".join(
        f"{queue.name}: {len(queue)} waiting, the oldest for {queue.oldest_waiting_s(now):.1f}s;"
        f" longest in hand for {queue.longest_s(now):.1f}s\n"
        for queue in queues
    )
