"""Sockets that only their owner closes."""

from __future__ import annotations

import gc
import os
import socket
from pathlib import Path

from informers.sockets import OwnedSocket, open_socket
from tests.informers.faultserver import FaultServer, client_of

ADDRESS = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 0))


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def test_a_socket_that_is_forgotten_closes_nothing():
    forgotten = open_socket(ADDRESS)
    number = forgotten.fileno()
    del forgotten
    gc.collect()
    assert is_open(number)
    os.close(number)


def test_a_socket_that_is_told_to_closes():
    owned = open_socket(ADDRESS)
    number = owned.fileno()
    owned.close()
    assert not is_open(number)


def test_it_is_a_socket_for_the_address_that_was_asked_for():
    with open_socket(ADDRESS) as made:
        assert (made.family, made.type, made.proto) == ADDRESS[:3]


async def test_the_client_connects_with_nothing_else(tmp_path: Path):
    before = len(alive())
    async with client_of(FaultServer(), tmp_path) as client:
        await client.request("GET", "/version")
        assert len(alive()) == before + 1


def alive() -> list[OwnedSocket]:
    return [found for found in gc.get_objects() if isinstance(found, OwnedSocket)]
