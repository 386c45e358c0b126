"""Sockets that are closed only by a call of `close`, and not by the garbage collector."""

import asyncio
import gc
import os
import socket
import ssl
from pathlib import Path

import trustme

from informers.http.client import open_client
from informers.http.configuration import load_credentials
from informers.http.transport import OwnedSocket, open_socket
from tests.informers.faultserver import tls_of, write_kubeconfig

ADDRESS = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 0))


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def test_a_collected_socket_leaves_its_descriptor_open():
    collected = open_socket(ADDRESS)
    number = collected.fileno()
    del collected
    gc.collect()
    assert is_open(number)
    os.close(number)


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
