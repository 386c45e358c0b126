"""A write that the gate forbids never reaches the server, even if the gate closes while the write waits."""

import asyncio
from pathlib import Path

import pytest

from informers.errors import GateClosed, TransportError
from informers.http.client import ApiClient
from informers.objects import PatchType
from tests.informers.faultserver import FaultServer, answer, client_of, when
from tests.informers.subjects import CONFIGMAPS, key


class Gate:
    """A gate that counts its calls. If the gate is closed, each call raises GateClosed. Call number `closes_at` raises
    GateClosed too.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.closed = False
        self.closes_at = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.closed or self.calls == self.closes_at:
            raise GateClosed("the gate is closed")


async def write(client: ApiClient) -> None:
    await client.create(CONFIGMAPS, "ns", b"{}")


async def test_a_closed_gate_forbids_writes_and_allows_reads(tmp_path: Path):
    gate, server = Gate(), FaultServer()
    gate.closed = True
    async with client_of(server, tmp_path) as client:
        client.gate = gate
        for request in (
            write(client),
            client.delete(CONFIGMAPS, key("a"), uid="1"),
            client.patch(CONFIGMAPS, key("a"), b"{}", content_type=PatchType.MERGE),
        ):
            with pytest.raises(GateClosed):
                await request
        await client.get(CONFIGMAPS, key("a"))
    assert [request.method for request in server.requests] == ["GET"]
    assert gate.calls == 3


async def test_a_write_is_not_sent_if_the_gate_closes_while_it_waits_for_the_limit(tmp_path: Path):
    may_answer, gate = asyncio.Event(), Gate()
    server = FaultServer(when(may_answer, answer()))
    async with client_of(server, tmp_path, max_inflight=1) as client, asyncio.TaskGroup() as group:
        client.gate = gate
        first = group.create_task(write(client))
        while not server.busy:
            await asyncio.sleep(0.001)
        second = group.create_task(expect_closed(client))
        await asyncio.sleep(0.001)
        gate.closed = True
        may_answer.set()
    assert first.done()
    assert second.done()
    assert len(server.requests) == 1


async def test_a_gate_that_is_set_later_also_forbids_retries(tmp_path: Path):
    gate = Gate()

    async def close_and_refuse(writer: asyncio.StreamWriter) -> None:
        gate.closed = True
        writer.write(answer(429, retry_after="0"))

    server = FaultServer(close_and_refuse, answer())
    async with client_of(server, tmp_path) as client:
        client.gate = gate
        await expect_closed(client)
    assert len(server.requests) == 1


async def test_a_write_is_not_sent_if_the_gate_closes_after_the_connection_is_made(tmp_path: Path):
    gate, server = Gate(), FaultServer()
    gate.closes_at = 2
    async with client_of(server, tmp_path) as client:
        client.gate = gate
        with pytest.raises(TransportError) as caught:
            await write(client)
        assert caught.value.sent is False
        gate.closes_at = 0
        await write(client)
    assert [request.method for request in server.requests] == ["POST"]


async def expect_closed(client: ApiClient) -> None:
    with pytest.raises(GateClosed):
        await write(client)
