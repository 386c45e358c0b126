"""The order in which the control plane starts. The test uses no programs and no clock."""

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest

from sandbox import controlplane
from sandbox.admin import Rejected
from sandbox.binaries import Binaries
from sandbox.controlplane import APISERVER, DEFAULT_ACCOUNT, ETCD, MANAGER, ControlPlane

CRDS, CLASSES = "CRDs", "StorageClasses"


class SlowServer:
    """An API server that creates its roles only after the CRDs are installed. It counts as ready when it has roles."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def send(self, method: str, path: str, *, timeout_s: float) -> None:
        needed = {"/readyz": CRDS, DEFAULT_ACCOUNT: MANAGER}.get(path, APISERVER)
        if needed not in self.steps:
            raise Rejected(500, f"{path} waits for {needed}")

    def install(self, *_: object) -> list[str]:
        self.steps.append(CRDS)
        return []


def test_crds_are_installed_while_the_api_server_creates_its_roles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, ticks = SlowServer(), itertools.count()
    monkeypatch.setattr(controlplane, "Admin", lambda _: server)
    monkeypatch.setattr(controlplane.crds, "install", server.install)
    monkeypatch.setattr(controlplane, "install_storage_classes", lambda _: server.steps.append(CLASSES))
    monkeypatch.setattr(controlplane, "time", SimpleNamespace(monotonic=lambda: next(ticks), sleep=lambda _: None))
    monkeypatch.setattr(ControlPlane, "start_component", lambda _, name: server.steps.append(name))
    monkeypatch.setattr(ControlPlane, "failed", lambda _: "")
    plane = ControlPlane(tmp_path, Binaries({}), ports=lambda count: list(range(1, count + 1)))
    plane.start()
    plane.stop()
    assert server.steps == [ETCD, APISERVER, CRDS, CLASSES, MANAGER]
