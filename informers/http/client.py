"""A simple HTTP client for the API server. It sends and returns bytes, and raises an ApiError for each failure.

A write first waits until fewer than `max_inflight` writes are running (`informers.http.fairness`), which counts in its
duration. Then the gate can forbid it, on an open connection, before any byte is sent.

The section "Client" of docs/informers.md lists its promises, and the only three cases in which it repeats a request.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import aiohttp
import structlog
from aiohttp.connector import NEEDS_CLEANUP_CLOSED

from informers.errors import AnswerTooLarge, StatusError, TransportError, Unauthorized, from_response
from informers.http.configuration import Credentials, load_credentials
from informers.http.fairness import FairSlots
from informers.http.gate import Gate, GatedBody, GatedConnector
from informers.http.kubeconfig import ConfigurationError
from informers.http.transport import open_socket, read_chunks, report_lost_connection, transport_error
from informers.http.warnings import collect
from informers.instruments import NO_INSTRUMENTS, Instruments
from informers.meta import ObjectKey
from informers.objects import LONGEST_PAGE, METADATA_LIST
from informers.resource import Resource

__all__ = ["ApiClient", "ConfigurationError", "Credentials", "load_credentials", "open_client"]

log = structlog.get_logger()

T = TypeVar("T")

JSON = "application/json"

REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
DEFAULT_TIMEOUT = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S)
WATCH_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
MAX_TRIES = 4
LONGEST_RETRY_AFTER_S = 10.0
"""The longest Retry-After, in seconds, for which the client waits. After a longer one, the request fails."""

READ_BUFFER = 1 << 17  # bytes; in one turn of the event loop, a watch decodes up to two buffers: about 60 VMIs
_NO_LIMIT, NO_ANSWER = nullcontext(), "<error>"


class _Request(NamedTuple):
    method: str
    path: str
    params: Mapping[str, str] | None
    body: bytes | None
    content_type: str
    accept: str
    limits: aiohttp.ClientTimeout
    longest: int | None


class ApiClient:
    """An HTTP client for one API server. `open_client` creates the instances."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        connector: GatedConnector,
        credentials: Credentials,
        *,
        instruments: Instruments = NO_INSTRUMENTS,
        max_inflight: int | None = None,
    ) -> None:
        self._session = session
        self._connector = connector
        self._credentials = credentials
        self._instruments = instruments
        self.field_manager = ""
        """The name of the writer in the `managedFields` of the objects, or "" for the name of the program."""

        self.write_slots = FairSlots(max_inflight) if max_inflight else None
        self._host = urlsplit(credentials.host).netloc

    @property
    def namespace(self) -> str:
        """The namespace of the kubeconfig's context or of the Pod. If both are missing, the namespace is "default"."""
        return self._credentials.namespace

    @property
    def gate(self) -> Gate | None:
        """Called immediately before each write, or None. The caller of the write gets its exception."""
        return self._connector.gate

    @gate.setter
    def gate(self, gate: Gate | None) -> None:
        self._connector.gate = gate

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout_s: float | None = None,
        longest: int | None = None,
    ) -> bytes:
        """Send one request and return the body of the answer. Raise ApiError if the request fails.

        `accept` is the media type of the answer. `timeout_s` limits one attempt; None means `REQUEST_TIMEOUT_S`. With
        `longest`, raise AnswerTooLarge if the body has more bytes.
        """
        limits = DEFAULT_TIMEOUT
        if timeout_s is not None:
            limits = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(timeout_s, CONNECT_TIMEOUT_S))
        if self.field_manager and method in ("POST", "PATCH"):
            params = {**(params or {}), "fieldManager": self.field_manager}
        request = _Request(method, path, params, body, content_type, accept, limits, longest)
        tries = 0
        while True:
            tries += 1
            send = partial(self._send_in_turn, request, asyncio.get_running_loop().time())
            try:
                return await self._authorized(send)
            except StatusError as error:
                wait_s = error.retry_after_s
                is_busy = error.code in (429, 503) and tries < MAX_TRIES
                if not is_busy or wait_s is None or wait_s > LONGEST_RETRY_AFTER_S:
                    raise
                self._instruments.request_retried(verb=method, host=self._host, code=str(error.code))
            await asyncio.sleep(wait_s)

    async def get(self, resource: Resource[Any], key: ObjectKey, *, subresource: str = "") -> bytes:
        return await self.request("GET", resource.path(key.namespace, key.name, subresource))

    async def list_metadata(
        self, resource: Resource[Any], namespace: str, *, limit: int, continue_: str = "", selector: str = ""
    ) -> bytes:
        wanted = {"limit": str(limit), "continue": continue_, "labelSelector": selector}
        params = {name: value for name, value in wanted.items() if value}
        path = resource.path(namespace)
        return await self.request("GET", path, params=params, accept=METADATA_LIST, longest=LONGEST_PAGE)

    async def create(self, resource: Resource[Any], namespace: str, body: bytes, *, dry_run: bool = False) -> bytes:
        """With `dry_run`, the server checks the request in the same way, but stores nothing."""
        params = {"dryRun": "All"} if dry_run else {}
        return await self.request("POST", resource.path(namespace), params=params, body=body)

    async def patch(
        self, resource: Resource[Any], key: ObjectKey, body: bytes, *, content_type: str, subresource: str = ""
    ) -> bytes:
        path = resource.path(key.namespace, key.name, subresource)
        return await self.request("PATCH", path, body=body, content_type=content_type)

    async def update(self, resource: Resource[Any], key: ObjectKey, body: bytes, *, subresource: str) -> bytes:
        return await self.request("PUT", resource.path(*key, subresource), body=body, accept="*/*")

    async def delete(
        self,
        resource: Resource[Any],
        key: ObjectKey,
        *,
        uid: str = "",
        propagation: str = "Background",
        version: str = "",
    ) -> bytes:
        """Delete the object and return the body of the answer. Raise ApiError, or Conflict for a wrong precondition."""
        conditions = (("uid", uid), ("resourceVersion", version))
        given = ",".join(f'"{field}":"{value}"' for field, value in conditions if value)
        options = f'"propagationPolicy":"{propagation}","preconditions":{{{given}}}'
        body = f'{{"kind":"DeleteOptions","apiVersion":"v1",{options}}}'
        return await self.request("DELETE", resource.path(key.namespace, key.name), body=body.encode())

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        params: Mapping[str, str],
        idle_timeout_s: float,
        may_pause: Callable[[], bool] = lambda: False,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch and yield an iterator over its data in chunks, until the server ends the watch.

        While `may_pause` returns True, a busy watch is read less often (see `read_chunks`). Raise ApiError if the watch
        cannot be opened or is lost, and TimeoutError if no data arrives for `idle_timeout_s` seconds.
        """
        answer = await self._authorized(partial(self._open_stream, path, params))
        report_lost_connection(answer)
        chunks = read_chunks(answer, self._host, idle_timeout_s=idle_timeout_s, may_pause=may_pause)
        try:
            yield chunks
        finally:
            # The connection cannot be used again, because a part of the answer may still be unread. Abort the
            # connection instead of closing it. Closing TLS would need another iteration of the event loop and an answer
            # from the server.
            if answer.connection is not None and answer.connection.transport is not None:
                answer.connection.transport.abort()
            answer.close()
            await chunks.aclose()

    async def _authorized(self, send: Callable[[str | None], Awaitable[T]]) -> T:
        """Return the result of `send` with the token, and after a 401 with a new token."""
        token = await self._token()
        try:
            return await send(token)
        except Unauthorized:
            if not await self._renew(token):
                raise
        return await send(await self._token())

    async def _open_stream(self, path: str, params: Mapping[str, str], token: str | None) -> aiohttp.ClientResponse:
        loop = asyncio.get_running_loop()
        started = loop.time()
        code = NO_ANSWER
        tls = self._credentials.ssl
        try:
            # This time limit ends when the headers of the answer arrive. The watch itself has no time limit.
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                answer = await self._session.get(
                    self._credentials.host + path,
                    params=params,
                    headers=_headers(token),
                    timeout=WATCH_TIMEOUT,
                    **self._connection(),
                )
                code = str(answer.status)
                if answer.status != 200:
                    async with answer:
                        raise _refusal(answer, await answer.read())
        except (aiohttp.ClientError, OSError) as error:
            # The caller opens the watch again after a delay.
            await self._distrusts(error, tls)
            raise transport_error(error, self._host) from error
        finally:
            self._instruments.request_finished(verb="GET", host=self._host, code=code, seconds=loop.time() - started)
        return answer

    async def _send_in_turn(self, request: _Request, started: float, token: str | None) -> bytes:
        """Wait until the limits allow the request, and send it. `started` is the beginning of the reported duration."""
        async with _NO_LIMIT if request.method == "GET" or self.write_slots is None else self.write_slots:
            tls = self._credentials.ssl
            try:
                return await self._send(request, token, started)
            except TransportError as error:
                if not await self._distrusts(error.__cause__, tls):
                    raise
            return await self._send(request, token, started)

    async def _send(self, request: _Request, token: str | None, started: float) -> bytes:
        sent = {} if request.body is None else {"Content-Type": request.content_type}
        # A small compressed answer may be large.
        plain = {} if request.longest is None else {"Accept-Encoding": "identity"}
        headers = {**_headers(token), **sent, **plain, "Accept": request.accept}
        body = None if request.body is None else GatedBody(request.body, self.gate)
        code = NO_ANSWER
        try:
            async with self._session.request(
                request.method,
                self._credentials.host + request.path,
                params=request.params,
                data=body,
                headers=headers,
                timeout=request.limits,
                **self._connection(),
            ) as answer:
                code = str(answer.status)
                collect(answer.headers.getall("Warning", ()))
                content = await _body(answer, request)
                if answer.status >= 300:
                    raise _refusal(answer, content)
                return content
        except (aiohttp.ClientError, OSError) as error:
            raise transport_error(error, self._host, sent=body is None or body.is_begun) from error
        finally:
            seconds = asyncio.get_running_loop().time() - started
            self._instruments.request_finished(verb=request.method, host=self._host, code=code, seconds=seconds)

    def _connection(self) -> dict[str, Any]:
        credentials = self._credentials
        tls = {"ssl": credentials.ssl, "server_hostname": credentials.server_hostname}
        return {**tls, "proxy": credentials.proxy, "allow_redirects": False}

    async def _distrusts(self, error: BaseException | None, tls: ssl.SSLContext | bool) -> bool:
        """Return True if the TLS context `tls` did not trust the server and the client now has a new TLS context."""
        if not isinstance(error, aiohttp.ClientConnectorCertificateError):
            return False
        return await self._credentials.renew_trust(tls)

    async def _token(self) -> str | None:
        try:
            await self._credentials.refresh_trust()
            return await self._credentials.authorization()
        except ConfigurationError as error:
            raise TransportError(str(error), sent=False) from error

    async def _renew(self, rejected: str | None) -> bool:
        """Load the credentials again after a 401 for the token `rejected`. Return True if a repeat may succeed."""
        try:
            await self._credentials.renew(rejected)
        except ConfigurationError as error:
            log.warning("the server rejected the credentials and they cannot be loaded again", why=str(error))
            return False
        return True


@asynccontextmanager
async def open_client(
    credentials: Credentials,
    *,
    user_agent: str,
    instruments: Instruments = NO_INSTRUMENTS,
    max_inflight: int | None = 50,
) -> AsyncIterator[ApiClient]:
    """Open a client with its own session, for `max_inflight` writes at once, or any number: a lease must not wait."""
    connector = GatedConnector(
        limit=0,
        ttl_dns_cache=30,
        keepalive_timeout=75,
        socket_factory=open_socket,
        # Otherwise the TLS connection of a cancelled request stays open until the server closes it.
        enable_cleanup_closed=NEEDS_CLEANUP_CLOSED,
    )
    async with aiohttp.ClientSession(
        connector=connector,
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=READ_BUFFER,
        headers=[("User-Agent", user_agent), ("Accept", JSON), *credentials.headers],
    ) as session:
        session._retry_connection = False  # else aiohttp sends GET, PUT and DELETE again after a lost connection
        yield ApiClient(session, connector, credentials, instruments=instruments, max_inflight=max_inflight)


def _refusal(answer: aiohttp.ClientResponse, body: bytes) -> StatusError:
    return from_response(answer.status, body, retry_after=answer.headers.get("Retry-After"))


async def _body(answer: aiohttp.ClientResponse, request: _Request) -> bytes:
    if request.longest is None:
        return await answer.read()
    parts, size = list[bytes](), 0
    async for part in answer.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > request.longest:
            answer.close()
            raise AnswerTooLarge(f"the answer to {request.path} is longer than {request.longest} bytes")
    return b"".join(parts)


def _headers(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": token}
