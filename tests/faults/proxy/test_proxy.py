"""The fault proxy against a tiny server: what it changes, what reaches the server, and what the client gets."""

import asyncio
import gzip
import json
import ssl
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import yaml

from tests.faults.proxy.actions import (
    Action,
    Corrupt,
    CrashAfter,
    CrashBefore,
    CutAnswer,
    Delay,
    Dribble,
    Hang,
    LoseAnswer,
    Refuse,
    Reset,
)
from tests.faults.proxy.authority import shared_authority
from tests.faults.proxy.proxy import fault_proxy
from tests.faults.proxy.rules import Match, Rule
from tests.faults.proxy.threads import fault_proxy_in_thread
from tests.faults.proxy.tiny_server import connected, plain, proxied
from tests.faults.proxy.upstream import open_upstream
from tests.faults.proxy.wire import chunk

THINGS = "/apis/example.org/v1/namespaces/n/things"
ANY = Match()
HEADERS = "User-Agent: vmherd/1\r\nX-Odd:  two  \r\nAuthorization: Bearer secret\r\nAccept-Encoding: gzip\r\n"


async def test_without_a_rule_the_request_and_the_answer_keep_their_bytes() -> None:
    async with proxied() as (server, proxy), connected(proxy) as client:
        client.ask(f"{THINGS}/a%2Fb?x=1%202&y=", "PATCH", b'{"a": 1}', HEADERS + "Content-Type: application/x\r\n")
        assert await client.read(len(server.answer)) == server.answer
        [request] = server.requests
        assert request.startswith(f"PATCH {THINGS}/a%2Fb?x=1%202&y= HTTP/1.1\r\n".encode())
        assert request.endswith(b'\r\n\r\n{"a": 1}')
        head = request.partition(b"\r\n\r\n")[0]
        sent = {*HEADERS.replace("  two  ", " two").encode().splitlines(), b"Content-Type: application/x"}
        added = {b"Host: " + server.url.removeprefix("http://").encode(), b"Accept: application/json"}
        assert set(head.splitlines()[1:]) == sent | added | {b"Content-Length: 8"}


@pytest.mark.parametrize(
    "answer",
    [
        plain(b""),
        plain(gzip.compress(b"{}")).replace(b"Audit-Id: 1", b"Content-Encoding: gzip"),
        plain(b"{}", "409 Conflict").replace(b"Audit-Id: 1", b"Set-Cookie: a=1\r\nSet-Cookie: b=2"),
        b"HTTP/1.1 204 No Content\r\nAudit-Id: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nAudit-Id: 1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"{}") + b"0\r\n\r\n",
    ],
)
async def test_each_form_of_answer_keeps_its_bytes_also_in_pieces(answer: bytes) -> None:
    async with proxied() as (server, proxy), connected(proxy) as client:
        server.answer = answer
        proxy.add(Rule(ANY, Dribble(1)))
        for _ in range(2):
            client.ask(THINGS)
            assert await client.read(len(answer)) == answer


async def test_without_a_rule_a_watch_keeps_its_bytes_and_its_end() -> None:
    async with proxied() as (server, proxy), connected(proxy) as client:
        client.ask(f"{THINGS}?watch=1")
        await client.until(b"\r\n\r\n")
        await server.send(b"one\n", b"two\nthr", b"ee\n")
        assert await client.read(18) == chunk(b"one\n") + chunk(b"two\n")
        await server.end()
        assert (await client.until(b"0\r\n\r\n")).endswith(chunk(b"three\n") + b"0\r\n\r\n")
        client.ask(THINGS)
        assert (await client.answer())[0] == 200


@pytest.mark.parametrize("retry_after", ["", "7", "Fri, 31 Dec 2027 23:59:59 GMT", "soon"])
async def test_a_refused_request_gets_a_status_object_and_never_reaches_the_server(retry_after: str) -> None:
    async with proxied() as (server, proxy), connected(proxy) as client:
        number = proxy.add(Rule(ANY, Refuse(429, retry_after=retry_after), times=2))
        for _ in range(2):
            client.ask(THINGS, "POST", b"{}")
            status, head, body = await client.answer()
            assert (status, json.loads(body)["reason"]) == (429, "TooManyRequests")
            assert (b"Retry-After: " + retry_after.encode() in head) == bool(retry_after)
        assert not server.requests
        client.ask(THINGS, "POST", b"{}")
        assert (await client.answer())[0] == 200
        assert [decision.code for decision in proxy.decisions(number)] == [429, 429]
        assert [decision.rule for decision in proxy.log] == [number, number, 0]


@pytest.mark.parametrize(
    ("action", "client_sees", "requests", "codes"),
    [
        (LoseAnswer(), ("reset",), 1, (0, 200)),
        (LoseAnswer(hang=True), ("silence",), 1, (0, 200)),
        (Hang(), ("silence",), 0, (0, 0)),
        (Reset(), ("reset",), 0, (0, 0)),
        (Delay(answer_s=0.1), ("silence", "answer"), 1, (200, 200)),
        (CrashAfter(), ("silence", "crash after 1"), 1, (0, 200)),
        (CrashBefore(), ("silence", "crash after 0"), 0, (0, 0)),
    ],
)
async def test_a_fault_decides_what_the_client_sees_and_whether_the_request_reaches_the_server(
    action: Action, client_sees: tuple[str, ...], requests: int, codes: tuple[int, int]
) -> None:
    async with proxied() as (server, proxy), connected(proxy) as client:
        crashes: list[str] = []
        proxy.on_crash = lambda: crashes.append(f"crash after {len(server.requests)}")
        number = proxy.add(Rule(Match("create"), action))
        client.ask(THINGS, "POST", b"{}")
        for seen in client_sees:
            if seen == "silence":
                assert await client.silent()
            elif seen == "answer":
                assert (await client.answer())[0] == 200
            elif seen == "reset":
                with pytest.raises(ConnectionResetError):
                    await client.rest()
            else:
                assert crashes == [seen]
        assert len(server.requests) == requests
        assert [(d.code, d.server_code) for d in proxy.decisions(number)] == [codes]


async def test_a_delayed_request_reaches_the_server_after_the_client_has_given_up() -> None:
    async with proxied() as (server, proxy):
        proxy.add(Rule(ANY, Delay(before_s=0.1)))
        async with connected(proxy) as client:
            client.ask(THINGS, "POST", b"{}")
            await asyncio.sleep(0.02)
        assert not server.requests
        await asyncio.sleep(0.15)
        assert len(server.requests) == 1


async def test_a_compressed_answer_is_cut_in_the_middle_of_the_stream() -> None:
    async with proxied() as (_, proxy), connected(proxy) as client:
        proxy.add(Rule(ANY, CutAnswer(15, gzip=True)))
        client.ask(THINGS)
        head = await client.until(b"\r\n\r\n")
        assert b"Content-Encoding: gzip" in head
        assert (await client.read(15))[:2] == b"\x1f\x8b"
        with pytest.raises(ConnectionResetError):
            await client.rest()


async def test_an_answer_is_cut_at_each_byte() -> None:
    async with proxied() as (_, proxy):
        size = len(b'{"kind":"Thing"}')
        for at in range(size):
            proxy.add(Rule(ANY, CutAnswer(at)))
            async with connected(proxy) as client:
                client.ask(THINGS)
                await client.until(b"\r\n\r\n")
                assert await client.read(at) == b'{"kind":"Thing"}'[:at]
                with pytest.raises(ConnectionResetError):
                    await client.rest()


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("not JSON", b"<html>"),
        ("half JSON", b'\r\n\r\n{"kind":'),
        ("wrong JSON", b'\r\n\r\n["an array"'),
        ("content type", b"Content-Type: text/html"),
        ("chunk size", b"\r\n\r\nnot a number\r\n"),
        ("content length", b"Content-Length: 1016"),
    ],
)
async def test_a_corrupted_answer_is_sent_after_the_server_has_done_the_work(how: str, expected: bytes) -> None:
    async with proxied() as (server, proxy), connected(proxy) as client:
        proxy.add(Rule(ANY, Corrupt(how)))  # type: ignore[arg-type]
        client.ask(THINGS, "POST", b"{}")
        assert expected in await client.rest()
        assert len(server.requests) == 1


async def test_a_crash_before_a_write_keeps_the_write_from_the_server_and_silences_all_connections() -> None:
    async with proxied() as (server, proxy), connected(proxy) as other, connected(proxy) as client:
        crashed = asyncio.Event()
        proxy.on_crash = crashed.set
        proxy.add(Rule(Match("write"), CrashBefore(), after=1))
        other.ask(f"{THINGS}?watch=1")
        await other.until(b"\r\n\r\n")
        client.ask(THINGS, "POST", b"{}")
        await client.answer()
        client.ask(THINGS, "POST", b"{}")
        await crashed.wait()
        await server.send(b"late\n")
        assert await client.silent()
        assert await other.silent()
        other.ask(THINGS)
        async with connected(proxy) as third:
            third.ask(THINGS)
            assert await third.silent()
        assert len(server.requests) == 2


async def test_a_request_that_the_server_has_before_a_crash_ends_there_and_its_answer_is_lost() -> None:
    async with proxied() as (server, proxy), connected(proxy) as slow, connected(proxy) as client:
        server.held.clear()
        slow.ask(THINGS, "POST", b"{}")
        while not server.requests:
            await asyncio.sleep(0.001)
        proxy.add(Rule(Match("delete"), CrashBefore()))
        client.ask(f"{THINGS}/a", "DELETE")
        assert await client.silent()
        server.held.set()
        assert await slow.silent()
        assert [d.server_code for d in proxy.log] == [200, 0]


async def test_after_a_change_of_the_authority_only_the_new_ca_file_is_good(tmp_path: Path) -> None:
    async with proxied(tls=True) as (_, proxy):
        config = yaml.safe_load(proxy.write_kubeconfig(tmp_path / "kubeconfig", "secret").read_text())
        trusted = Path(config["clusters"][0]["cluster"]["certificate-authority"])
        assert config["users"][0]["user"] == {"token": "secret"}
        old = trusted.read_bytes()
        async with connected(proxy, old) as client:
            proxy.change_authority()
            with suppress(ConnectionResetError, ssl.SSLError):
                assert await client.rest() == b""
        assert trusted.read_bytes() == old
        with pytest.raises(ssl.SSLCertVerificationError):
            async with connected(proxy, old):
                pass
        proxy.write_ca_files()
        async with connected(proxy, trusted.read_bytes()) as client:
            client.ask(THINGS)
            assert (await client.answer())[0] == 200


async def test_a_server_that_is_gone_resets_the_connection() -> None:
    async with (
        open_upstream("http://127.0.0.1:1") as upstream,
        fault_proxy(upstream, tls=False) as proxy,
        connected(proxy) as client,
    ):
        client.ask(THINGS)
        with pytest.raises(ConnectionResetError):
            await client.rest()


def test_a_proxy_in_a_thread_takes_rules_from_the_test(tmp_path: Path) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_bytes(shared_authority().pem)
    with fault_proxy_in_thread("https://127.0.0.1:1", ca) as proxy:
        number = proxy.add(Rule(ANY, Refuse(418)))
        with pytest.raises(HTTPError, match="418") as refused:
            urlopen(proxy.url + THINGS, context=ssl.create_default_context(cafile=str(ca)), timeout=5)
        refused.value.close()
        assert [decision.code for decision in proxy.decisions(number)] == [418]
        proxy.remove(number)
