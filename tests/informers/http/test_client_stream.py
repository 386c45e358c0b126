"""`ApiClient.stream`: the start and the end of a watch, and failures of the network."""

import asyncio
from pathlib import Path

import pytest

from informers.errors import TransportError
from informers.http.client import ApiClient
from tests.informers.faultserver import FaultServer, answer, chunked, client_of, cut, hang
from tests.informers.subjects import CONFIGMAPS, key

PATH = "/api/v1/configmaps"


async def read(client: ApiClient, *, idle_timeout_s: float = 5.0) -> bytes:
    received = []
    async with client.stream(PATH, params={"watch": "1"}, idle_timeout_s=idle_timeout_s) as chunks:
        async for chunk in chunks:
            received.append(chunk)
    return b"".join(received)


@pytest.mark.parametrize(
    ("then", "idle_s", "error"), [(cut, 60, TransportError), (hang, 0.05, TimeoutError)], ids=["lost", "silent"]
)
async def test_a_lost_or_silent_watch_raises_and_is_not_a_clean_end(tmp_path: Path, then, idle_s, error):
    async with client_of(FaultServer(chunked(b"{}\n", then=then)), tmp_path) as client:
        with pytest.raises(error):
            await read(client, idle_timeout_s=idle_s)


@pytest.mark.parametrize("bad", [b"not a size\r\n", b"-1\r\n", b"3\r\n{}\nno end of the chunk"])
async def test_a_framing_error_ends_the_watch_at_once(tmp_path: Path, bad: bytes):
    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.write(bad)
        await hang(writer)

    async with client_of(FaultServer(send), tmp_path) as client:
        async with asyncio.timeout(10):
            with pytest.raises(TransportError):
                await read(client, idle_timeout_s=60)


async def test_after_401_the_token_is_reloaded_for_a_watch(tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("old")
    server = FaultServer(answer(401), chunked(b"{}\n"))
    async with client_of(server, tmp_path, user={"tokenFile": str(token)}, tls=True) as client:
        token.write_text("new")
        assert await read(client) == b"{}\n"
    assert [request.headers["authorization"] for request in server.requests] == ["Bearer old", "Bearer new"]


async def test_watches_do_not_count_as_requests_in_flight(tmp_path: Path):
    server = FaultServer(chunked(b"{}\n", then=hang), chunked(b"{}\n", then=hang), answer(200, b"done"))
    async with (
        client_of(server, tmp_path, max_inflight=1) as client,
        client.stream(PATH, params={}, idle_timeout_s=5) as one,
        client.stream(PATH, params={}, idle_timeout_s=5) as two,
    ):
        assert await anext(aiter(one)) == await anext(aiter(two)) == b"{}\n"
        assert await client.get(CONFIGMAPS, key("a")) == b"done"


async def test_the_connection_is_closed_when_the_stream_block_ends(tmp_path: Path):
    closed = asyncio.Event()

    async def send_until_closed(writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(b"3\r\n{}\n\r\n")
                await writer.drain()
                await asyncio.sleep(0.001)
        except ConnectionError:
            closed.set()
            raise

    async with client_of(FaultServer(chunked(b"{}\n", then=send_until_closed)), tmp_path) as client:
        async with client.stream(PATH, params={}, idle_timeout_s=5) as chunks:
            assert await anext(aiter(chunks))
        async with asyncio.timeout(5):
            await closed.wait()
