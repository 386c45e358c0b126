"""`python -m benchmarks.replay`: run the replay server, and write its kubeconfig into the directory.

python -m benchmarks.replay DIRECTORY SETS VMIS_OF_SET POOLS VMS_OF_POOL

Requests below `/replay/` control the server: `begin?pid=`, `report`, `churn?rate=&seconds=`, `react?count=&pause=`,
`lose-one`, `load`.
"""

import asyncio
import gc
import json
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop
from aiohttp import web

from benchmarks.fleet import Size
from benchmarks.replay.server import Load, Server
from benchmarks.replay.store import Store
from sandbox.pki import ADMIN_GROUP, Pki, kubeconfig


@asynccontextmanager
async def serving(size: Size, tls: ssl.SSLContext) -> AsyncIterator[int]:
    """Serve a cluster of this size until the end of the block. Yield the port."""
    server = Server(Store(size))
    gc.freeze()
    load = Load(server, size)

    async def control(request: web.Request) -> web.Response:
        return web.json_response(load.control(request.match_info["what"], request.query))

    app = web.Application()
    app.router.add_get("/replay/{what}", control)
    app.router.add_get("/version", server.version)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def main(directory: Path, size: Size) -> None:
    """Serve until SIGTERM. Write the file `kubeconfig` into the directory when the server is ready."""
    pki = Pki(directory / "pki")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    identity = pki.server()
    tls.load_cert_chain(identity.certificate, identity.key)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serving(size, tls) as port:
        client = pki.client("bench", ADMIN_GROUP)
        unfinished = directory / ".kubeconfig"
        unfinished.write_text(json.dumps(kubeconfig(f"https://127.0.0.1:{port}", pki.ca, "bench", client)))
        unfinished.rename(directory / "kubeconfig")
        await stop.wait()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), Size(*map(int, sys.argv[2:]))))
