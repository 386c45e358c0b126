"""The TCP proxy of the soak."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks.soak.network import running_network


@contextmanager
def echo() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(peer,), daemon=True).start()

        def answer(peer: socket.socket) -> None:
            with peer:
                while True:
                    try:
                        data = peer.recv(1000)
                    except OSError:
                        return
                    if not data:
                        return
                    peer.sendall(data)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def connected(port: int) -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", port), timeout=5)
    peer.sendall(b"hello")
    assert peer.recv(100) == b"hello"
    return peer


def test_cut_resets_each_connection_and_new_connections_work():
    with echo() as port, running_network(port) as network, connected(network.port) as one, connected(network.port):
        assert network.cut() == 2
        with pytest.raises(ConnectionResetError):
            assert one.recv(100) == b"" or one.sendall(b"again") or one.recv(100)
        connected(network.port).close()


def test_a_paused_network_keeps_the_bytes_until_it_flows_again():
    with echo() as port, running_network(port) as network, connected(network.port) as peer:
        network.pause(flowing=False)
        peer.settimeout(0.3)
        peer.sendall(b"late")
        with pytest.raises(TimeoutError):
            peer.recv(100)
        network.pause(flowing=True)
        peer.settimeout(5)
        assert peer.recv(100) == b"late"


def bound_port(server: socket.socket) -> int:
    """Bind the socket, so that no other program gets its port. A connection to the port is refused."""
    server.bind(("127.0.0.1", 0))
    port: int = server.getsockname()[1]
    return port


def test_a_server_that_does_not_run_resets_the_connection():
    with (
        socket.socket() as not_listening,
        running_network(bound_port(not_listening)) as network,
        # The reset may arrive before the client has noticed that it is connected.
        pytest.raises(ConnectionResetError),
        socket.create_connection(("127.0.0.1", network.port), timeout=5) as peer,
    ):
        peer.recv(100)
