"""The gate before writes: closed at any moment before the bytes, nothing leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from informers.client import ApiClient, load_credentials, open_client
from informers.errors import TransportError
from sandbox.processes import free_ports


class Gate:
    """Lets so many questions pass, and then none."""

    def __init__(self, passes: int) -> None:
        self.left = passes
        self.closed = TransportError("closed", sent=False)

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise self.closed


@asynccontextmanager
async def client_of_a_server(directory: Path, seen: list[str]) -> AsyncIterator[ApiClient]:
    """A client, and a server that writes down what arrives."""

    async def answer(request: web.BaseRequest) -> web.Response:
        seen.append(f"{request.method} {(await request.read()).decode()}")
        return web.Response(text="{}")

    (port,) = free_ports(1)
    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        config = {
            "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "me", "user": {}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            "current-context": "here",
        }
        kubeconfig = directory / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(config))
        async with open_client(await load_credentials(str(kubeconfig)), user_agent="vmherd-tests") as client:
            yield client
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("passes", [0, 1])
async def test_a_gate_that_closes_before_the_bytes_keeps_them_here_and_says_so(passes: int, tmp_path: Path) -> None:
    seen: list[str] = []
    async with client_of_a_server(tmp_path, seen) as client:
        gate = Gate(passes)
        client.gate = gate
        with pytest.raises(TransportError) as caught:
            await client.request("POST", "/things", body=b"one")
        assert caught.value is gate.closed
        client.gate = None
        await client.request("POST", "/things", body=b"two")
    assert seen == ["POST two"]


async def test_a_read_needs_no_open_gate(tmp_path: Path) -> None:
    seen: list[str] = []
    async with client_of_a_server(tmp_path, seen) as client:
        client.gate = Gate(0)
        await client.request("GET", "/things")
    assert seen == ["GET "]
