"""A simple HTTP client for the API server. The client sends and returns bytes and raises an ApiError for each failure.

One client uses one aiohttp session with explicit timeouts. The client ignores the proxy settings of the environment.

A request first waits until fewer than `max_inflight` requests are running. Then the request waits for the token bucket
if the client has one. Watches are not counted and do not wait for either limit.

Before a write, the client calls the gate. At that moment the client is connected and about to send the request.

The client repeats a request in two cases only, because only the caller knows whether a write may be repeated:

- After an answer 429 or 503 with a Retry-After, the client waits and repeats the request. It sends the request at most
  4 times.
- After an answer 401, the client loads the credentials again and repeats the request once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import structlog
from aiohttp.connector import NEEDS_CLEANUP_CLOSED

from informers.configuration import ConfigurationError, Credentials, load_credentials
from informers.errors import StatusError, TransportError, Unauthorized, from_response
from informers.gate import Gate, GatedBody, GatedConnector
from informers.instruments import NO_INSTRUMENTS, ClientInstruments
from informers.meta import ObjectKey
from informers.ratelimit import TokenBucket
from informers.resource import Resource
from informers.sockets import open_socket

__all__ = [
    "ApiClient",
    "ConfigurationError",
    "Credentials",
    "load_credentials",
    "open_client",
]

log = structlog.get_logger()

JSON = "application/json"

REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
DEFAULT_TIMEOUT = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S)
MAX_TRIES = 4
"""If the answer to this many attempts of one request is 429 or 503, the client raises the error."""

LONGEST_RETRY_AFTER_S = 10.0
"""Longest Retry-After, in seconds, that the client waits for. If it is longer, the client raises the error."""

READ_BUFFER = 1 << 20
NO_ANSWER = "<error>"


class _Request(NamedTuple):
    method: str
    path: str
    params: Mapping[str, str] | None
    body: bytes | None
    content_type: str
    accept: str
    limits: aiohttp.ClientTimeout


class _Answer(NamedTuple):
    code: int
    body: bytes
    retry_after: str | None


class ApiClient:
    """An HTTP client for one API server. `open_client` creates the instances.

    The docstring of this module describes the limits, the gate and the retries.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        connector: GatedConnector,
        credentials: Credentials,
        *,
        instruments: ClientInstruments = NO_INSTRUMENTS,
        max_inflight: int | None = None,
        bucket: TokenBucket | None = None,
    ) -> None:
        self._session = session
        self._connector = connector
        self._credentials = credentials
        self._instruments = instruments
        self._inflight = asyncio.Semaphore(max_inflight) if max_inflight else nullcontext()
        self._bucket = bucket
        self._host = urlsplit(credentials.host).netloc

    @property
    def namespace(self) -> str:
        """The namespace of the kubeconfig's context or of the Pod, or "default" if neither names a namespace."""
        return self._credentials.namespace

    @property
    def gate(self) -> Gate | None:
        """The function that the client calls immediately before each write, or None.

        If the function raises an exception, the write is not sent, and the caller of the write gets the exception.
        """
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
    ) -> bytes:
        """Send one request and return the body of the answer. Raise ApiError if the request fails.

        `accept` is the media type of the answer. `timeout_s` limits one attempt; None means `REQUEST_TIMEOUT_S`.
        """
        limits = DEFAULT_TIMEOUT
        if timeout_s is not None:
            limits = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(timeout_s, CONNECT_TIMEOUT_S))
        request = _Request(method, path, params, body, content_type, accept, limits)
        tries = 0
        while True:
            tries += 1
            try:
                return await self._try(request)
            except StatusError as error:
                wait_s = error.retry_after_s
                if error.code not in (429, 503) or wait_s is None or wait_s > LONGEST_RETRY_AFTER_S:
                    raise
                if tries >= MAX_TRIES:
                    raise
            await asyncio.sleep(wait_s)

    async def get(self, resource: Resource[Any], key: ObjectKey, *, subresource: str = "") -> bytes:
        return await self.request("GET", resource.path(key.namespace, key.name, subresource))

    async def create(self, resource: Resource[Any], namespace: str, body: bytes) -> bytes:
        return await self.request("POST", resource.path(namespace), body=body)

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
        """Delete the object and return the body of the answer. Raise ApiError if the request fails.

        If `uid` or `version` is not empty, the server deletes the object only if its UID or resourceVersion is equal.
        Otherwise the server answers with Conflict.
        """
        conditions = (("uid", uid), ("resourceVersion", version))
        given = ",".join(f'"{field}":"{value}"' for field, value in conditions if value)
        options = f'"propagationPolicy":"{propagation}","preconditions":{{{given}}}'
        body = f'{{"kind":"DeleteOptions","apiVersion":"v1",{options}}}'
        return await self.request("DELETE", resource.path(key.namespace, key.name), body=body.encode())

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], idle_timeout_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch and yield an iterator over its data in chunks. The iterator ends when the server ends the watch.

        Raise ApiError if the watch cannot be opened or if the connection is lost. Raise TimeoutError during the
        iteration if no data arrives for `idle_timeout_s` seconds.
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=idle_timeout_s)
        token = await self._token()
        try:
            answer = await self._open_stream(path, params, limits, token)
        except Unauthorized:
            if not await self._renew(token):
                raise
            answer = await self._open_stream(path, params, limits, await self._token())
        chunks = self._chunks(answer)
        try:
            yield chunks
        finally:
            # The connection cannot be used again, because the answer may not have been read to its end. Abort the
            # connection instead of closing it: closing TLS needs another iteration of the event loop and an answer from
            # the server.
            if answer.connection is not None and answer.connection.transport is not None:
                answer.connection.transport.abort()
            answer.close()
            await chunks.aclose()

    async def _open_stream(
        self, path: str, params: Mapping[str, str], limits: aiohttp.ClientTimeout, token: str | None
    ) -> aiohttp.ClientResponse:
        loop = asyncio.get_running_loop()
        started = loop.time()
        code = NO_ANSWER
        try:
            # This time limit ends when the headers of the answer arrive. The watch itself has no time limit.
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                answer = await self._session.get(
                    self._credentials.host + path,
                    params=params,
                    headers=_headers(token),
                    timeout=limits,
                    ssl=self._credentials.ssl,
                    server_hostname=self._credentials.server_hostname,
                    proxy=self._credentials.proxy,
                    allow_redirects=False,
                )
                code = str(answer.status)
                if answer.status != 200:
                    async with answer:
                        raise from_response(
                            answer.status, await answer.read(), retry_after=answer.headers.get("Retry-After")
                        )
        except (aiohttp.ClientError, OSError) as error:
            raise self._transport_error(error) from error
        finally:
            self._instruments.request_finished(verb="GET", host=self._host, code=code, seconds=loop.time() - started)
        return answer

    async def _try(self, request: _Request) -> bytes:
        async with self._inflight:
            if self._bucket is not None:
                await asyncio.sleep(self._bucket.reserve(asyncio.get_running_loop().time()))
            token = await self._token()
            answer = await self._send(request, token)
            if answer.code == 401 and await self._renew(token):
                answer = await self._send(request, await self._token())
        if answer.code >= 300:
            raise from_response(answer.code, answer.body, retry_after=answer.retry_after)
        return answer.body

    async def _send(self, request: _Request, token: str | None) -> _Answer:
        headers = {**_headers(token), "Accept": request.accept}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        loop = asyncio.get_running_loop()
        started = loop.time()
        code = NO_ANSWER
        try:
            async with self._session.request(
                request.method,
                self._credentials.host + request.path,
                params=request.params,
                data=self._gated(request.body),
                headers=headers,
                timeout=request.limits,
                ssl=self._credentials.ssl,
                server_hostname=self._credentials.server_hostname,
                proxy=self._credentials.proxy,
                allow_redirects=False,
            ) as answer:
                code = str(answer.status)
                return _Answer(answer.status, await answer.read(), answer.headers.get("Retry-After"))
        except (aiohttp.ClientError, OSError) as error:
            raise self._transport_error(error) from error
        finally:
            self._instruments.request_finished(
                verb=request.method, host=self._host, code=code, seconds=loop.time() - started
            )

    def _gated(self, body: bytes | None) -> bytes | GatedBody | None:
        return body if body is None or self.gate is None else GatedBody(body, self.gate)

    async def _chunks(self, answer: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in answer.content.iter_any():
                yield chunk
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError) as error:
            raise self._transport_error(error) from error

    async def _token(self) -> str | None:
        try:
            return await self._credentials.authorization()
        except ConfigurationError as error:
            raise TransportError(str(error), sent=False) from error

    async def _renew(self, rejected: str | None) -> bool:
        """Load the credentials again, because the server answered 401 to a request with the token `rejected`.

        Return True if the request should be repeated. Return False if the credentials cannot be loaded.
        """
        try:
            await self._credentials.renew(rejected)
        except ConfigurationError as error:
            log.warning("the server rejected the credentials and they cannot be loaded again", why=str(error))
            return False
        return True

    def _transport_error(self, error: Exception) -> TransportError:
        """Convert an error of aiohttp or the system to TransportError.

        In the result, `sent` is False only if the client had no connection or if the gate forbade the write. In every
        other case the request may have reached the server.
        """
        match error:
            case aiohttp.ClientConnectionError(__cause__=TransportError() as forbidden_by_gate):
                return forbidden_by_gate
            case aiohttp.ClientConnectorCertificateError():
                cause = error.certificate_error
                why = getattr(cause, "verify_message", "") or str(cause)
                return TransportError(f"cannot trust the certificate of {self._host}: {why}", sent=False)
            case aiohttp.ClientConnectorError():
                return TransportError(f"cannot connect to {self._host}: {_reason(error.os_error)}", sent=False)
            case aiohttp.ConnectionTimeoutError():
                return TransportError(f"cannot connect to {self._host}: connection timeout", sent=False)
            case TimeoutError():
                return TransportError(f"no answer from {self._host} in time", sent=True)
            case _:
                return TransportError(f"the connection to {self._host} was lost: {_reason(error)}", sent=True)


@asynccontextmanager
async def open_client(
    credentials: Credentials,
    *,
    user_agent: str,
    instruments: ClientInstruments = NO_INSTRUMENTS,
    max_inflight: int | None = 50,
    qps: float = 0.0,
    burst: int = 1,
    gate: Gate | None = None,
) -> AsyncIterator[ApiClient]:
    """Open a client with its own session. Close the client at the end of the `async with` block.

    `max_inflight` is the largest number of requests at the same time; None means no limit. `qps` is the number of
    requests per second, and `burst` the number of requests that can be sent at once; `qps=0` means no limit. The
    requests for a lease need a client without limits, because they must not wait for other requests.

    Several clients can share one `Credentials` object. Then they load the certificates and the token only once.
    """
    connector = GatedConnector(
        limit=0,
        ttl_dns_cache=30,
        keepalive_timeout=75,
        socket_factory=open_socket,
        # Without this option, the TLS connection of a cancelled request stays open until the server closes it.
        enable_cleanup_closed=NEEDS_CLEANUP_CLOSED,
    )
    connector.gate = gate
    async with aiohttp.ClientSession(
        connector=connector,
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=READ_BUFFER,
        headers={"User-Agent": user_agent, "Accept": JSON},
    ) as session:
        yield ApiClient(
            session,
            connector,
            credentials,
            instruments=instruments,
            max_inflight=max_inflight,
            bucket=TokenBucket(rate_per_s=qps, burst=burst) if qps else None,
        )


def _headers(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": token}


def _reason(error: Exception) -> str:
    """Return the reason of a failure as text for users.

    If the error has an error number, return the operating system's text for this number. Otherwise return the text of
    the exception, or the name of its class if the text is empty.
    """
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
