"""The gate before every write: what it forbids never reaches the server, whatever a write had to wait for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from informers.client import ApiClient
from informers.errors import TransportError
from informers.objects import PatchType
from tests.informers.faultserver import FaultServer, answer, client_of, when
from tests.informers.subjects import CONFIGMAPS, key


class Closed(TransportError):
    def __init__(self) -> None:
        super().__init__("held back", sent=False)


class Gate:
    """Counts who asks, and closes."""

    def __init__(self) -> None:
        self.asked = 0
        self.closed = False
        self.closes_at = 0

    def __call__(self) -> None:
        self.asked += 1
        if self.closed or self.asked == self.closes_at:
            raise Closed


async def write(client: ApiClient) -> None:
    await client.create(CONFIGMAPS, "ns", b"{}")


async def test_a_closed_gate_lets_no_write_out_and_every_read(tmp_path: Path):
    gate, server = Gate(), FaultServer()
    gate.closed = True
    async with client_of(server, tmp_path, gate=gate) as client:
        for request in (
            write(client),
            client.delete(CONFIGMAPS, key("a"), uid="1"),
            client.patch(CONFIGMAPS, key("a"), b"{}", content_type=PatchType.MERGE),
        ):
            with pytest.raises(Closed):
                await request
        await client.get(CONFIGMAPS, key("a"))
    assert [request.method for request in server.requests] == ["GET"]
    assert gate.asked == 3


async def test_a_gate_that_closes_while_a_write_waits_for_its_turn_keeps_it_in(tmp_path: Path):
    go_on, gate = asyncio.Event(), Gate()
    server = FaultServer(when(go_on, answer()))
    async with client_of(server, tmp_path, gate=gate, max_inflight=1) as client, asyncio.TaskGroup() as group:
        first = group.create_task(write(client))
        while not server.busy:
            await asyncio.sleep(0.001)
        second = group.create_task(expect_closed(client))
        await asyncio.sleep(0.001)
        gate.closed = True
        go_on.set()
    assert first.done()
    assert second.done()
    assert len(server.requests) == 1


async def test_a_gate_that_closes_while_a_connection_is_made_keeps_the_write_in(tmp_path: Path):
    gate, server = Gate(), FaultServer()

    def close() -> None:
        gate.closed = True

    async with client_of(server, tmp_path, gate=gate) as client:
        server.connected = close
        task = asyncio.create_task(expect_closed_after_connecting(client, server, gate))
        await task
    assert server.requests == []


async def test_a_gate_may_be_put_in_later_and_holds_for_what_is_tried_again(tmp_path: Path):
    gate = Gate()

    async def close_and_refuse(writer: asyncio.StreamWriter) -> None:
        gate.closed = True
        writer.write(answer(429, retry_after="0"))

    server = FaultServer(close_and_refuse, answer())
    async with client_of(server, tmp_path) as client:
        client.gate = gate
        await expect_closed(client)
    assert len(server.requests) == 1


async def test_a_gate_that_closes_between_having_a_connection_and_using_it_keeps_the_write_in(tmp_path: Path):
    gate, server = Gate(), FaultServer()
    gate.closes_at = 2
    async with client_of(server, tmp_path, gate=gate) as client:
        with pytest.raises(TransportError) as caught:
            await write(client)
        assert caught.value.sent is False
        gate.closes_at = 0
        await write(client)
    assert [request.method for request in server.requests] == ["POST"]


async def expect_closed(client: ApiClient) -> None:
    with pytest.raises(Closed):
        await write(client)


async def expect_closed_after_connecting(client: ApiClient, server: FaultServer, gate: Gate) -> None:
    gate.closed = False
    with pytest.raises(Closed):
        await write(client)
    assert server.connections == 1
