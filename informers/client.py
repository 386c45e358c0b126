"""One thin client of the API server: bytes in, bytes out, every failure typed.

One aiohttp session does it all, with explicit timeouts and without a look at proxies in the environment. A request
passes, in this order: the limit on requests in flight, the token bucket where one is set, and, for a write, the gate,
which is asked last, immediately before the request leaves. Watches take no place in the limit. Answers 429 and 503
with Retry-After are waited out a few times; a 401 loads the credentials anew and is tried once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp

from informers.configuration import ConfigurationError, Credentials, load_credentials
from informers.errors import ApiError, StatusError, TransportError, from_response
from informers.instruments import NO_INSTRUMENTS, ClientInstruments
from informers.meta import ObjectKey
from informers.ratelimit import TokenBucket
from informers.resource import Resource

__all__ = ["JSON_PATCH", "MERGE_PATCH", "ApiClient", "ConfigurationError", "Credentials", "load_credentials"]

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"

REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
PATIENT_TRIES = 4
"""How often an answer that says "later" is waited out before it becomes the caller's failure."""

LONGEST_PATIENCE_S = 10.0
READ_BUFFER = 1 << 20
NO_ANSWER = "<error>"

_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


class _Request(NamedTuple):
    method: str
    path: str
    params: Mapping[str, str] | None
    body: bytes | None
    content_type: str
    limits: aiohttp.ClientTimeout


class _Answer(NamedTuple):
    code: int
    body: bytes
    retry_after: str | None


class ApiClient:
    """See the module's contract. Made by `open_client`."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        credentials: Credentials,
        *,
        instruments: ClientInstruments = NO_INSTRUMENTS,
        max_inflight: int | None = None,
        bucket: TokenBucket | None = None,
        gate: Callable[[], None] | None = None,
    ) -> None:
        self._session = session
        self._credentials = credentials
        self._instruments = instruments
        self._inflight = asyncio.Semaphore(max_inflight) if max_inflight else nullcontext()
        self._bucket = bucket
        self._host = urlsplit(credentials.host).netloc
        self.gate = gate

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        timeout_s: float | None = None,
    ) -> bytes:
        """Send one request and return the answer's body. Raises ApiError."""
        limits = aiohttp.ClientTimeout(total=timeout_s or REQUEST_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S)
        request = _Request(method, path, params, body, content_type, limits)
        tries = 0
        while True:
            tries += 1
            try:
                return await self._try(request)
            except StatusError as error:
                wait_s = error.retry_after_s
                if error.code not in (429, 503) or wait_s is None or wait_s > LONGEST_PATIENCE_S:
                    raise
                if tries >= PATIENT_TRIES:
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

    async def delete(
        self, resource: Resource[Any], key: ObjectKey, *, uid: str = "", propagation: str = "Background"
    ) -> bytes:
        """Delete the object if it still is the one with this UID; any, without one."""
        condition = f',"preconditions":{{"uid":"{uid}"}}' if uid else ""
        body = f'{{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"{propagation}"{condition}}}'
        return await self.request("DELETE", resource.path(key.namespace, key.name), body=body.encode())

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], idle_timeout_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch. The iterator ends when the server ends it.

        Raises ApiError, at the start or while iterating; TimeoutError when nothing came for `idle_timeout_s`.
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=idle_timeout_s)
        renewed = False
        while True:
            token = await self._credentials.authorization()
            try:
                answer = await self._open_stream(path, params, limits, token)
            except StatusError as error:
                if error.code != 401 or renewed:
                    raise
                await self._credentials.renew(token)
                renewed = True
            else:
                break
        chunks = _chunks(answer)
        try:
            yield chunks
        finally:
            # A watch is never read to its end: its connection cannot serve anybody else.
            answer.close()
            await chunks.aclose()

    async def _open_stream(
        self, path: str, params: Mapping[str, str], limits: aiohttp.ClientTimeout, token: str | None
    ) -> aiohttp.ClientResponse:
        loop = asyncio.get_running_loop()
        started = loop.time()
        code = NO_ANSWER
        try:
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
            raise _transport_error(error) from error
        finally:
            self._instruments.request_finished(verb="GET", host=self._host, code=code, seconds=loop.time() - started)
        return answer

    async def _try(self, request: _Request) -> bytes:
        async with self._inflight:
            if self._bucket is not None:
                await asyncio.sleep(self._bucket.reserve(asyncio.get_running_loop().time()))
            token = await self._credentials.authorization()
            answer = await self._send(request, token)
            if answer.code == 401:
                await self._credentials.renew(token)
                answer = await self._send(request, await self._credentials.authorization())
        if answer.code >= 300:
            raise from_response(answer.code, answer.body, retry_after=answer.retry_after)
        return answer.body

    async def _send(self, request: _Request, token: str | None) -> _Answer:
        headers = _headers(token)
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if self.gate is not None and request.method != "GET":
            self.gate()
        loop = asyncio.get_running_loop()
        started = loop.time()
        code = NO_ANSWER
        try:
            async with self._session.request(
                request.method,
                self._credentials.host + request.path,
                params=request.params,
                data=request.body,
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
            raise _transport_error(error) from error
        finally:
            self._instruments.request_finished(
                verb=request.method, host=self._host, code=code, seconds=loop.time() - started
            )


@asynccontextmanager
async def open_client(
    credentials: Credentials,
    *,
    user_agent: str,
    instruments: ClientInstruments = NO_INSTRUMENTS,
    max_inflight: int | None = 50,
    qps: float = 0.0,
    burst: int = 1,
    gate: Callable[[], None] | None = None,
) -> AsyncIterator[ApiClient]:
    """A client with a session of its own. `max_inflight=None` and `qps=0` set no limits, as for a lease."""
    connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=30, keepalive_timeout=75)
    async with aiohttp.ClientSession(
        connector=connector,
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=READ_BUFFER,
        headers={"User-Agent": user_agent, "Accept": JSON},
    ) as session:
        yield ApiClient(
            session,
            credentials,
            instruments=instruments,
            max_inflight=max_inflight,
            bucket=TokenBucket(rate_per_s=qps, burst=burst) if qps else None,
            gate=gate,
        )


async def _chunks(answer: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    try:
        async for chunk in answer.content.iter_any():
            yield chunk
    except TimeoutError:
        raise
    except (aiohttp.ClientError, OSError) as error:
        raise _transport_error(error) from error


def _headers(token: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}" if not token.startswith("Bearer ") else token} if token else {}


def _transport_error(error: Exception) -> ApiError:
    """`sent` is False only where no connection was had: everything else may have reached the server."""
    what = str(error) or type(error).__name__
    if isinstance(error, TimeoutError) and not isinstance(error, _NOT_SENT):
        what = "no answer in time"
    return TransportError(what, sent=not isinstance(error, _NOT_SENT))
