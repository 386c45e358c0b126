"""The server of the page. It listens on loopback, answers only requests that know the token, and writes nothing.

A page of another site can send requests to loopback, and can give its own name the address of loopback (DNS rebinding).
So the Host header must be the server's own address, and each path begins with a random token.
"""

import asyncio
import hmac
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Final

from aiohttp import web

from controller.running import is_set_within
from informers.errors import ApiError
from plugin.commands.watching import SILENT_S, follow
from plugin.connection import Failed, Session, describe
from plugin.printing import clean
from plugin.ui.html import Markup, path
from plugin.ui.look import RETRY_S, Changes, Look, look_at
from plugin.ui.pages import document, error_page

LOOPBACK: Final = "127.0.0.1"
SLOWEST_S: Final = 10.0
"""The longest time between two looks at the cluster. Some texts change although no object does."""

QUIET_S: Final = 0.3
"""The pause between two looks. A burst of changes is one look."""

GOODBYE_S: Final = 0.1
"""The time in which open requests may end after Ctrl-C. For aiohttp, 0 would mean no limit."""

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
ASSETS: Final = {"style.css": "text/css", "script.js": "text/javascript"}

OBJECT: Final = "/".join(f"{{{part}:[a-z0-9][a-z0-9.-]*}}" for part in ("namespace", "type", "name"))

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Page:
    def __init__(self, session: Session, changes: Changes, port: int, token: str) -> None:
        self._session = session
        self._changes = changes
        self._hosts = {f"{LOOPBACK}:{port}", f"localhost:{port}"}
        self._token = token
        self.root = f"/{token}/"
        self._one_look = asyncio.Lock()

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._guard])
        app.add_routes([web.get(f"/{{token}}/{name}", self._asset) for name in ASSETS])
        for place in ("", OBJECT):
            app.add_routes([web.get(f"/{{token}}/{place}", self._page)])
            app.add_routes([web.get(f"/{{token}}/live/{place}", self._live)])
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse a request with another Host header or without the token. No answer says which part was wrong."""
        token = request.path.lstrip("/").partition("/")[0]
        knows = hmac.compare_digest(token.encode(errors="replace"), self._token.encode())
        if request.host not in self._hosts or not knows:
            return web.Response(
                status=403, text="open the address that kubectl vmherd ui has printed\n", headers=HEADERS
            )
        try:
            return await handler(request)
        except web.HTTPException as error:
            return web.Response(status=error.status, text=f"{error.reason}\n", headers=HEADERS)

    async def _asset(self, request: web.Request) -> web.Response:
        name = request.path.removeprefix(self.root)
        return web.Response(text=(files("plugin.ui") / name).read_text(), content_type=ASSETS[name], headers=HEADERS)

    async def _page(self, request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(SILENT_S):
                shown = await self._look(request)
        except ApiError as error:
            shown = Look(error_page(describe(error)))
        except TimeoutError:
            shown = Look(error_page(f"no answer from the API server in {SILENT_S:.0f} seconds"))
        place = self._place(request)
        title = f"{place.get('name', 'all sets and pools')} - vmherd"
        text = document(self.root, path(*place.values()), title, shown.main)
        return web.Response(text=text, content_type="text/html", headers=HEADERS)

    async def _live(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await answer.prepare(request)
        last, said, change = Look(Markup("")), "", asyncio.Event()
        change.set()

        async def look() -> Look:
            nonlocal change
            change = self._changes.next
            return await self._look(request)

        async def pause() -> None:
            await is_set_within(change, RETRY_S if last.is_error else SLOWEST_S)
            await asyncio.sleep(QUIET_S)

        async def show(shown: Look, silence: str) -> None:
            nonlocal last, said
            if silence:
                await answer.write(f"event: silence\ndata: {clean(silence)}\n\n".encode())
            elif shown.main != last.main or said:
                await answer.write(f"data: {shown.main}\n\n".encode())
            else:
                await answer.write(b"event: seen\ndata:\n\n")
            last, said = shown, silence

        await follow(last, look, show, pause=pause)
        return answer

    async def _look(self, request: web.Request) -> Look:
        async with self._one_look:
            return await look_at(self._session, self.root, self._place(request))

    def _place(self, request: web.Request) -> dict[str, str]:
        return {key: text for key, text in request.match_info.items() if key != "token"}


@asynccontextmanager
async def serving(session: Session, changes: Changes, port: int) -> AsyncIterator[str]:
    """Serve the page while the block runs, and yield its address. Raise Failed if the port cannot be used."""
    with _listener(port) as listener:
        number = listener.getsockname()[1]
        page = Page(session, changes, number, secrets.token_urlsafe(24))
        runner = web.AppRunner(
            page.application(), access_log=None, shutdown_timeout=GOODBYE_S, handler_cancellation=True
        )
        await runner.setup()
        try:
            await web.SockSite(runner, listener).start()
            yield f"http://{LOOPBACK}:{number}{page.root}"
        finally:
            await runner.cleanup()


def _listener(port: int) -> socket.socket:
    try:
        return socket.create_server((LOOPBACK, port))
    except OSError as error:
        why = os.strerror(error.errno).lower() if error.errno else str(error)
        raise Failed(f"error: cannot listen on {LOOPBACK}:{port}: {why}; --port=0 takes a free port") from error
