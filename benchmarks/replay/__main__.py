"""`python -m benchmarks.replay`: run the replay server, and print the path of its kubeconfig.

python -m benchmarks.replay DIRECTORY [--sets 100] [--vmis-of-set 20] [--pools 10] [--vms-of-pool 20]

Requests below `/replay/` control the server: `begin?pid=`, `report`, `churn?rate=&seconds=`, `react?count=&pause=`,
`lose-one`, `load`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import signal
import ssl
import sys
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.replay.http import Connection
from benchmarks.replay.load import Load
from benchmarks.replay.objects import Size, fill
from benchmarks.replay.server import Server
from benchmarks.replay.state import State
from sandbox.pki import ADMIN_GROUP, Pki


async def serve(directory: Path, size: Size) -> None:
    """Serve until SIGTERM. Write the file `kubeconfig` into the directory when the server is ready."""
    server = Server(State())
    fill(server.state, size)
    gc.freeze()
    load = Load(server, size)
    loop = asyncio.get_running_loop()
    pki = Pki(directory / "pki")
    listener = await loop.create_server(lambda: Connection(server.handle), "127.0.0.1", 0, ssl=_tls(pki))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with asyncio.TaskGroup() as group:
        tasks: list[asyncio.Task[None]] = []

        def begin(params: dict[str, str]) -> str:
            server.seen.begin(int(params.get("pid", 0)))
            return "counting"

        def churn(params: dict[str, str]) -> str:
            tasks.append(group.create_task(load.churn(float(params["rate"]), float(params["seconds"]))))
            return "started"

        def react(params: dict[str, str]) -> str:
            tasks.append(group.create_task(load.react(int(params["count"]), float(params["pause"]))))
            return "started"

        def lose_one(_: dict[str, str]) -> str:
            load.lose_one()
            return "lost"

        def load_report(_: dict[str, str]) -> dict[str, Any]:
            running = sum(not task.done() for task in tasks)
            reactions = {"reactions_ms": load.reactions_ms, "missed": load.missed}
            return {"running": running, "changes": load.changes, **reactions}

        server.controls |= {
            "begin": begin,
            "report": lambda _: server.seen.report(),
            "churn": churn,
            "react": react,
            "lose-one": lose_one,
            "load": load_report,
        }
        _write_kubeconfig(directory, pki, listener.sockets[0].getsockname()[1])
        await stop.wait()
        for task in tasks:
            task.cancel()
    listener.close()


def _tls(pki: Pki) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    identity = pki.server()
    context.load_cert_chain(identity.certificate, identity.key)
    return context


def _write_kubeconfig(directory: Path, pki: Pki, port: int) -> None:
    client = pki.client("bench", ADMIN_GROUP)
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(pki.ca)}
    user = {"client-certificate": str(client.certificate), "client-key": str(client.key)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "replay", "cluster": cluster}],
        "users": [{"name": "bench", "user": user}],
        "contexts": [{"name": "replay", "context": {"cluster": "replay", "user": "bench"}}],
        "current-context": "replay",
    }
    unfinished = directory / ".kubeconfig"
    unfinished.write_text(json.dumps(config))
    unfinished.rename(directory / "kubeconfig")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description="Serve a large cluster.")
    parser.add_argument("directory", type=Path, help="directory for the kubeconfig and the certificates")
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--vmis-of-set", type=int, default=20)
    parser.add_argument("--pools", type=int, default=10)
    parser.add_argument("--vms-of-pool", type=int, default=20)
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    size = Size(given.sets, given.vmis_of_set, given.pools, given.vms_of_pool)
    sys.exit(uvloop.run(serve(given.directory, size)))


if __name__ == "__main__":
    main()
