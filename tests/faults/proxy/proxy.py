"""A reverse proxy between a controller and a real API server. Its rules cause every kind of failure that a network can
cause.

    async with fault_proxy(plane.url, plane.ca) as proxy:
        lost = proxy.add(Rule(Match("create", "virtualmachineinstances"), LoseAnswer(), times=None))
        run_the_controller(proxy.write_kubeconfig(path, token))
        proxy.decisions(lost)

The proxy runs in the event loop of its user. A refused request never reaches the server. A request whose answer is lost
always reaches the server. Without a rule, the proxy changes no content, but no watch is compressed.
`fault_proxy_in_thread` runs a proxy for synchronous tests.
"""

import asyncio
import functools
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import trustme
import yaml
from msgspec import Struct
from yarl import URL

from tests.faults.proxy import actions, answers
from tests.faults.proxy.listener import Listener
from tests.faults.proxy.rules import ApiRequest, Rule, Script, parse_request
from tests.faults.proxy.streams import WatchRelay
from tests.faults.proxy.wire import HOP_BY_HOP, Answer, Head, Received, Wire

SET_BY_THE_CLIENT = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
"""Headers that the session to the server must not add."""

CLOSED_AFTER_S = 0.05
"""The time that TLS connections need to finish closing.

Without this pause, sockets stay open when the event loop ends.
"""


class Authority(Struct, frozen=True):
    """A certificate authority, and a TLS context with a certificate that it issued for 127.0.0.1."""

    pem: bytes
    context: ssl.SSLContext


def new_authority() -> Authority:
    ca = trustme.CA(organization_name="vmherd tests")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    return Authority(ca.cert_pem.bytes(), context)


shared_authority = functools.cache(new_authority)
"""The certificate authority of all proxies of this process. The proxies share it, because a new one takes long."""

other_authority = functools.cache(new_authority)
"""`FaultProxy.change_authority` changes to this authority."""


class FaultProxy:
    """One proxy with its own port and script. `fault_proxy` starts and stops it."""

    def __init__(self, server: str, session: aiohttp.ClientSession) -> None:
        self._server, self._session = server, session
        self.script = Script()
        self._authority = shared_authority()
        self._ca_files: list[Path] = []
        self.listener = Listener(self._serve, self._authority.context)
        self._relays: set[WatchRelay] = set()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.listener.port}"

    def add(self, rule: Rule) -> int:
        """Add a rule and return its number. The rule also acts on open watches."""
        number = self.script.add(rule)
        self._wake()
        return number

    def remove(self, number: int) -> None:
        """Remove a rule. If the rule was holding back a watch, the watch continues."""
        self.script.remove(number)
        self._wake()

    def decisions(self, rule: int) -> int:
        """Return how often a rule has acted."""
        return self.script.acted[rule]

    def write_kubeconfig(self, path: Path, token: str) -> Path:
        """Write a kubeconfig for the proxy, and the CA certificate beside it. Return the path of the kubeconfig."""
        self._ca_files.append(path.with_name(f"{path.name}.ca.crt"))
        self.write_ca_files()
        cluster = {"server": self.url, "certificate-authority": str(self._ca_files[-1])}
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

    def change_authority(self) -> None:
        """Reset all connections and use a certificate of another authority. `write_ca_files` tells the clients."""
        self._authority = other_authority()
        self.listener.tls = self._authority.context
        self.listener.reset()

    def write_ca_files(self) -> None:
        """Replace the CA certificates beside the kubeconfigs with the certificate of the current authority."""
        for path in self._ca_files:
            temporary = path.with_name(f"{path.name}.new")
            temporary.write_bytes(self._authority.pem)
            temporary.replace(path)

    def _wake(self) -> None:
        for relay in self._relays:
            relay.wake()

    async def _serve(self, wire: Wire) -> None:
        while (received := await wire.receive()) is not None:
            request = parse_request(received.method, received.target)
            taken = self.script.decide(request, actions.OnRequest)
            await self._carry_out(wire, received, request, taken[1] if taken else None)
            if received.wants_close or not wire.open:
                wire.close()
                return

    async def _carry_out(self, wire: Wire, received: Received, request: ApiRequest, action: Any) -> None:
        match action:
            case actions.Refuse():
                await wire.send(answers.refusal_answer(action).encode(received.method))
            case actions.Reset():
                wire.reset()
            case _ if request.verb == "watch":
                await self._watch(wire, received, request, action)
            case _:
                await self._ask(wire, received, action)

    async def _ask(self, wire: Wire, received: Received, action: Any) -> None:
        """Forward a request that is not a watch, and send its answer as the action says."""
        answer = await self._forwarded(received)
        if answer is None:
            return wire.reset()
        match action:
            case actions.LoseAnswer():
                wire.reset()
            case actions.CutAnswer():
                await wire.send(answers.cut(answer, received.method))
                await asyncio.sleep(0.01)  # a reset discards data that the client has not read
                wire.reset()
            case _:
                await wire.send(answer.encode(received.method))

    async def _watch(self, wire: Wire, received: Received, request: ApiRequest, action: Any) -> None:
        target = received.target
        if isinstance(action, actions.ReplayWatch):
            older = f"resourceVersion={action.resource_version}"
            target = target.replace(f"resourceVersion={request.resource_version}", older)
        try:
            async with self._request(msgspec.structs.replace(received, target=target)) as answer:
                if isinstance(action, actions.LoseAnswer):
                    return wire.reset()
                if answer.status != 200:
                    return await wire.send(Answer(_head_of(answer), await answer.read()).encode())
                await self._relay(WatchRelay(wire, request, self.script), answer)
        except (aiohttp.ClientError, ConnectionError):
            wire.reset()

    async def _relay(self, relay: WatchRelay, answer: aiohttp.ClientResponse) -> None:
        self._relays.add(relay)
        try:
            await relay.run(_head_of(answer), answer)
        finally:
            self._relays.discard(relay)
            # A TLS connection that is only closed would wait for the server.
            if answer.connection is not None and answer.connection.transport is not None:
                answer.connection.transport.abort()
            answer.close()

    async def _forwarded(self, received: Received) -> Answer | None:
        """Return the server's answer, or None if the connection to the server fails."""
        try:
            async with self._request(received) as answer:
                return Answer(_head_of(answer), await answer.read())
        except (aiohttp.ClientError, ConnectionError):
            return None

    def _request(self, received: Received) -> Any:
        dropped = {*HOP_BY_HOP, "host", "content-length", "accept-encoding" if "watch=" in received.target else ""}
        headers = [pair for pair in received.headers if pair[0].lower() not in dropped]
        url = URL(self._server + received.target, encoded=True)
        return self._session.request(
            received.method, url, data=received.body or None, headers=headers, allow_redirects=False
        )


@asynccontextmanager
async def open_upstream(ca: Path | None) -> AsyncIterator[aiohttp.ClientSession]:
    """Open a session to an API server while the block runs."""
    trust = ssl.create_default_context(cafile=str(ca)) if ca else False
    connector = aiohttp.TCPConnector(ssl=trust, limit=0)
    async with aiohttp.ClientSession(
        connector=connector,
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        skip_auto_headers=SET_BY_THE_CLIENT,
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as session:
        yield session
        await connector.close(abort_ssl=True)
    await asyncio.sleep(CLOSED_AFTER_S)


@asynccontextmanager
async def fault_proxy(server: str, ca: Path | None = None) -> AsyncIterator[FaultProxy]:
    """Run a proxy in front of the server with this address while the block runs."""
    async with open_upstream(ca) as session:
        proxy = FaultProxy(server, session)
        await proxy.listener.open()
        try:
            yield proxy
        finally:
            await proxy.listener.close()


def _head_of(answer: aiohttp.ClientResponse) -> Head:
    headers = tuple((name.decode("latin-1"), text.decode("latin-1")) for name, text in answer.raw_headers)
    return Head(
        answer.status, answer.reason or "", tuple(pair for pair in headers if pair[0].lower() not in HOP_BY_HOP)
    )
