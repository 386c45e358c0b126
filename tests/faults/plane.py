"""Faults of a control plane's processes and of its data.

All functions block, like the methods of `ControlPlane`, except those of `Relay`: a relay runs in the event loop of its
user. A control plane with these faults is for one test only.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from sandbox.admin import Admin, Rejected
from sandbox.controlplane import APISERVER, ETCD, MANAGER, SECOND_APISERVER, ControlPlane

ETCD_WITHIN_S = 30.0
MANAGER_WITHIN_S = 30.0
BUMPED_BY = 10
"""A restore skips this number of revisions after the last known revision."""


@contextmanager
def frozen(plane: ControlPlane, component: str) -> Iterator[None]:
    """Freeze a component (SIGSTOP) while the block runs, and thaw the component afterwards (SIGCONT)."""
    pid = plane.pids()[component]
    os.kill(pid, signal.SIGSTOP)
    while not _is_stopped(pid):  # on a busy machine, its threads go on for a moment
        time.sleep(0.01)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _is_stopped(pid: int) -> bool:
    """True if each thread of the process is stopped by a signal."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    try:
        return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)
    except (FileNotFoundError, ProcessLookupError):  # a thread has ended in between
        return False


def restart_etcd(plane: ControlPlane) -> None:
    """Restart etcd while the API server runs. Return when etcd answers."""
    plane.stop_component(ETCD)
    plane.start_component(ETCD)
    _wait_for_etcd(plane)


def kill_apiserver(plane: ControlPlane) -> None:
    """Kill the API server (SIGKILL) and start the server again. Return when the server is ready."""
    os.kill(plane.pids()[APISERVER], signal.SIGKILL)
    plane.restart_apiserver()


def ask_etcd(plane: ControlPlane, path: str, **body: Any) -> Any:
    """Send a request to the JSON API of etcd."""
    url = f"http://127.0.0.1:{plane.etcd_port}/v3/{path}"
    with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=ETCD_WITHIN_S) as answer:
        return json.loads(answer.read())


def revision(plane: ControlPlane) -> int:
    """Return the current revision of etcd. Resource versions are revisions."""
    return int(ask_etcd(plane, "kv/range", key=base64.b64encode(b"\0").decode())["header"]["revision"])


def compact(plane: ControlPlane) -> int:
    """Compact etcd up to the current revision, and return this revision. Older revisions are gone at once."""
    now = revision(plane)
    ask_etcd(plane, "kv/compaction", revision=str(now), physical=True)
    return now


def defragment(plane: ControlPlane) -> None:
    """Defragment etcd. Etcd answers no request in the meantime."""
    ask_etcd(plane, "maintenance/defragment")


class Snapshot(Struct, frozen=True):
    """A copy of etcd's data, with the revision at that time."""

    directory: Path
    revision: int


def snapshot(plane: ControlPlane, directory: Path) -> Snapshot:
    """Copy the data of etcd to a new directory. Etcd is frozen during the copy, which takes milliseconds."""
    now = revision(plane)
    with frozen(plane, ETCD):
        shutil.copytree(plane.etcd_data, directory)
    return Snapshot(directory, now)


def restore(plane: ControlPlane, saved: Snapshot, *, bump_revision: bool = True) -> None:
    """Restore etcd from a snapshot, as an administrator does after a disaster. All later objects and changes are lost.

    With `bump_revision`, new resource versions are higher than all old resource versions, as with `etcdutl snapshot
    restore --bump-revision --mark-compacted`. Without it, etcd gives the same resource versions a second time. The API
    server and the controller manager restart. Return when the API server is ready.
    """
    for component in (MANAGER, APISERVER):
        plane.stop_component(component)
    old = revision(plane)  # the API server wrote until now
    plane.stop_component(ETCD)
    shutil.rmtree(plane.etcd_data)
    shutil.copytree(saved.directory, plane.etcd_data)
    plane.start_component(ETCD)
    _wait_for_etcd(plane)
    if bump_revision:
        for _ in range(max(0, old - revision(plane)) + BUMPED_BY):
            ask_etcd(plane, "kv/put", key=base64.b64encode(b"bumped").decode())
        compact(plane)
    plane.start_apiserver()
    _start_manager(plane)


def _start_manager(plane: ControlPlane) -> None:
    """Start the controller manager when the API server knows its roles again. Without a role, the manager ends."""
    manager = Admin(plane.directory / f"{MANAGER}.kubeconfig")
    deadline = time.monotonic() + MANAGER_WITHIN_S
    while True:
        try:
            manager.send("GET", "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")
            break
        except Rejected:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    plane.start_component(MANAGER)


class RevocableToken(Struct, frozen=True):
    """A token of a service account. The token expires as soon as its Secret is deleted."""

    token: str
    secret: str

    def revoke(self, plane: ControlPlane) -> None:
        """Delete the Secret. The API server may accept the token for 10 more seconds."""
        Admin(plane.kubeconfig).send("DELETE", self.secret)


def revocable_token(plane: ControlPlane, namespace: str, account: str) -> RevocableToken:
    """Make a token that a test can revoke. The shortest lifetime of other tokens is ten minutes."""
    admin, core = Admin(plane.kubeconfig), f"/api/v1/namespaces/{namespace}"
    name = f"{account}-{os.urandom(4).hex()}"
    _post(admin, f"{core}/secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}})
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": name}},
    }
    answer = _post(admin, f"{core}/serviceaccounts/{account}/token", request)
    return RevocableToken(answer["status"]["token"], f"{core}/secrets/{name}")


class Relay:
    """A TCP relay that a test can freeze: no byte passes in either direction, and the connections stay open."""

    def __init__(self, to_port: int) -> None:
        self.port = 0
        self._to_port = to_port
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._tasks: set[asyncio.Task[Any]] = set()

    def freeze(self) -> None:
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task: Any = asyncio.current_task()
        self._tasks.add(task)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to_port)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_on(reader, far_writer))
                group.create_task(self._pass_on(far_reader, writer))
        except OSError:
            writer.close()
        finally:
            self._tasks.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._thawed.wait()
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


@asynccontextmanager
async def relay(to_port: int) -> AsyncIterator[Relay]:
    """Run a relay to a port of this machine while the block runs."""
    running = Relay(to_port)
    server = await asyncio.start_server(running.serve, "127.0.0.1", 0)
    running.port = server.sockets[0].getsockname()[1]
    try:
        yield running
    finally:
        server.close()
        await running.close()


class StaleApiServer(Struct, frozen=True):
    """A second API server on the same etcd. While the relay is frozen, the cache of this server lags behind."""

    url: str
    etcd: Relay


@asynccontextmanager
async def stale_apiserver(plane: ControlPlane) -> AsyncIterator[StaleApiServer]:
    """Run a second API server while the block runs. The start takes a few seconds; then the cache is up to date.

    Reads from the cache work while the relay is frozen: watches, and lists with `resourceVersion=0`. Other requests
    hang, because they need etcd. The action `RouteTo` sends some requests of a controller to this server.
    """
    async with relay(plane.etcd_port) as etcd:
        url = await asyncio.to_thread(plane.start_second_apiserver, etcd.port)
        try:
            yield StaleApiServer(url, etcd)
        finally:
            etcd.thaw()
            await asyncio.to_thread(plane.stop_component, SECOND_APISERVER)


def _post(admin: Admin, path: str, body: dict[str, Any]) -> Any:
    return json.loads(admin.send("POST", path, json.dumps(body).encode(), "application/json"))


def _wait_for_etcd(plane: ControlPlane) -> None:
    give_up = time.monotonic() + ETCD_WITHIN_S
    while time.monotonic() < give_up:
        with suppress(urllib.error.URLError, OSError):
            revision(plane)
            return
        time.sleep(0.02)
    raise TimeoutError(f"etcd does not answer within {ETCD_WITHIN_S:g} s")
