"""The listening socket of the fault proxy closes every connection that it has accepted."""

import asyncio
import socket
from contextlib import suppress

import pytest

from tests.faults.proxy.listener import Listener
from tests.faults.proxy.wire import Wire


async def serve(wire: Wire) -> None:
    await wire.receive()
    wire.close()


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize("hangs", [False, True])
async def test_a_connection_that_arrives_shortly_before_the_end_is_closed(hangs: bool, turns: int) -> None:
    """A socket that stays open is an error: the garbage collector warns of it."""
    listener = Listener(serve, None)
    listener.hangs = hangs
    await listener.open()
    await asyncio.sleep(0)
    with socket.create_connection(("127.0.0.1", listener.port), timeout=10) as client:
        for _ in range(turns):
            await asyncio.sleep(0)
        await listener.close()
        with suppress(ConnectionResetError):
            assert await asyncio.to_thread(client.recv, 1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", listener.port), timeout=10)
