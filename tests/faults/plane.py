"""Faults of a control plane's processes and of its data.

All functions block, like the methods of `ControlPlane`. A control plane with these faults is for one test only.
"""

import base64
import json
import os
import shutil
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from sandbox.admin import Admin, Rejected
from sandbox.controlplane import APISERVER, ETCD, MANAGER, ControlPlane
from tests.controlplane.waits import eventually

ETCD_WITHIN_S = 30.0
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
    url = f"http://127.0.0.1:{plane.ports.etcd}/v3/{path}"
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

    def knows() -> bool:
        with suppress(Rejected):
            return bool(manager.get("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"))
        return False

    eventually(knows, within_s=30.0, what="the API server knows the roles of the controller manager")
    plane.start_component(MANAGER)


def _wait_for_etcd(plane: ControlPlane) -> None:
    def answers() -> bool:
        with suppress(urllib.error.URLError, OSError):
            return bool(revision(plane))
        return False

    eventually(answers, within_s=ETCD_WITHIN_S, what="etcd answers")
