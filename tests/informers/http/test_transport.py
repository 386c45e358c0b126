"""Sockets that only a call of `close` closes, and not the garbage collector. And how often a watch is read."""

import asyncio
import gc
import os
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import trustme

from informers.http.client import open_client
from informers.http.configuration import load_credentials
from informers.http.transport import GATHER_S, OwnedSocket, open_socket, read_chunks
from tests.fakes.virtual_time import run
from tests.informers.faultserver import tls_of, write_kubeconfig

ADDRESS = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 0))


def test_a_collected_socket_leaves_its_descriptor_open():
    collected = open_socket(ADDRESS)
    number = collected.fileno()
    del collected
    gc.collect()
    os.close(number)  # a closed descriptor is an error


def test_a_dead_server_is_detected_within_half_a_minute():
    with open_socket(ADDRESS) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle, interval, probes = (
            made.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + interval * probes <= 30
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000


async def test_a_closed_client_has_no_connections_also_if_the_server_does_not_confirm_their_end(tmp_path: Path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    tls = tls_of(authority)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> ssl.SSLSocket:
            connection = tls.wrap_socket(server.accept()[0], server_side=True)
            connection.recv(1)
            return connection

        url, trusted = f"https://127.0.0.1:{server.getsockname()[1]}", {"certificate-authority": "ca.crt"}
        file = write_kubeconfig(tmp_path / "kubeconfig", url, **trusted)
        async with open_client(await load_credentials(str(file)), user_agent="tests/1") as client:
            request = asyncio.create_task(client.request("GET", "/version"))
            silent = await asyncio.to_thread(accept)
            request.cancel()
            await asyncio.wait([request])
            assert len([each for each in alive() if each.fileno() >= 0]) == 1
        assert not [each for each in alive() if each.fileno() >= 0]
        silent.close()


def alive() -> list[OwnedSocket]:
    return [found for found in gc.get_objects() if isinstance(found, OwnedSocket)]


# How often a watch is read: a busy watch in few chunks, a quiet watch at once


PIECE = b'{"type":"MODIFIED"}\n'


class Connection:
    """An answer whose data arrive by `receive`. Paused, the data stay in the system."""

    def __init__(self) -> None:
        self.connection = self.transport = self.content = self
        self.paused = self.closing = False
        self._in_system, self._arrived = b"", b""
        self._wakes = asyncio.Event()

    def receive(self, data: bytes) -> None:
        self._in_system += data
        if not self.paused:
            self.resume_reading()

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False
        self._arrived, self._in_system = self._arrived + self._in_system, b""
        if self._arrived or self.closing:
            self._wakes.set()

    def is_closing(self) -> bool:
        return self.closing

    def end(self) -> None:
        self.closing = True
        self.resume_reading()

    async def readany(self) -> bytes:
        await self._wakes.wait()
        chunk, self._arrived = self._arrived, b""
        if not self.closing:
            self._wakes.clear()
        return chunk


def read(pieces: Sequence[tuple[float, bytes]], *, may_pause: bool = True) -> list[tuple[float, bytes]]:
    """Return the chunks, each with its time. `pieces` are the data of the server, each with the time since the piece
    before.
    """

    async def all_chunks() -> list[tuple[float, bytes]]:
        answer, loop = Connection(), asyncio.get_running_loop()
        started = loop.time()

        async def send() -> None:
            for pause_s, piece in pieces:
                await asyncio.sleep(pause_s)
                answer.receive(piece)
            await asyncio.sleep(1)
            answer.end()

        sender = asyncio.create_task(send())
        chunks = read_chunks(cast(Any, answer), "server", idle_timeout_s=60, may_pause=lambda: may_pause)
        found = [(loop.time() - started, chunk) async for chunk in chunks]
        await sender
        return found

    return run(all_chunks())


def test_small_pieces_of_a_busy_watch_arrive_in_few_chunks():
    chunks = read([(0.001, PIECE)] * 100)
    assert b"".join(chunk for _, chunk in chunks) == PIECE * 100
    assert len(chunks) <= 100 * 0.001 / GATHER_S + 3


def test_no_piece_waits_longer_than_the_pause():
    pieces = [(0.001, b"%d\n" % number) for number in range(100)]
    chunks = read(pieces)
    assert b"".join(chunk for _, chunk in chunks) == b"".join(piece for _, piece in pieces)
    for time, chunk in chunks:
        sent = [0.001 * (int(line) + 1) for line in chunk.split()]
        assert all(time - each <= GATHER_S + 0.0005 for each in sent)


def test_a_piece_after_a_silence_arrives_at_once():
    chunks = read([(0.001, PIECE)] * 20 + [(1.0, PIECE), (0.5, PIECE)])
    (later, _), (last, _) = chunks[-2:]
    assert (round(later, 3), round(last, 3)) == (1.02, 1.52)


def test_the_list_at_the_start_of_a_watch_is_read_without_pauses():
    assert [chunk for _, chunk in read([(0.001, PIECE)] * 30, may_pause=False)] == [PIECE] * 30
