"""A sandbox whose control plane has no processes: a signal ends it in order, and is not lost during its start."""

import itertools
import os
import signal
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from sandbox import controlplane, running
from sandbox.admin import Rejected
from sandbox.controlplane import APISERVER, DEFAULT_ACCOUNT, ETCD, MANAGER, ControlPlane
from sandbox.running import SIGNALS, Home, Interrupter, interruptible, run_sandbox


class NoProcesses:
    """A control plane that notes its calls."""

    calls: list[str]

    def __init__(self, directory: Path, _: object) -> None:
        self.kubeconfig = directory / "kubeconfig"
        type(self).calls = []

    def start(self) -> None:
        self.kubeconfig.touch()
        self.calls.append("start")

    def failed(self) -> str:
        return ""

    def stop(self) -> None:
        self.calls.append("stop")


@pytest.mark.parametrize("number", SIGNALS)
def test_each_signal_ends_the_sandbox_and_stops_the_control_plane(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    # A program that `nohup` started ignores SIGHUP, and so does the sandbox there.
    before = signal.signal(number, signal.SIG_DFL)
    request.addfinalizer(lambda: signal.signal(number, before))
    monkeypatch.setattr(running, "ControlPlane", NoProcesses)
    monkeypatch.setattr(running, "find_binaries", lambda: None)
    home = Home(tmp_path / "sandbox")
    home.prepare()

    def ready() -> None:
        state = home.state()
        assert state is not None
        assert state.ready
        os.kill(os.getpid(), number)

    began = time.monotonic()
    with interruptible() as interrupter, home.occupied():
        run_sandbox(home, simulate=None, on_ready=ready, interrupter=interrupter)
    assert time.monotonic() - began < 10, "SIGALRM, the signal of a test's timeout, ends the sandbox, too"
    assert NoProcesses.calls == ["start", "stop"]
    assert not home.kubeconfig.exists()
    assert home.state() is None


CRDS, CLASSES, ROLES = "CRDs", "StorageClasses", "roles"


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
    monkeypatch.setattr(controlplane, "install_definitions", server.install)
    monkeypatch.setattr(controlplane, "install_storage_classes", lambda _: server.steps.append(CLASSES))
    monkeypatch.setattr(controlplane, "install_user_roles", lambda _: server.steps.append(ROLES))
    monkeypatch.setattr(controlplane, "time", SimpleNamespace(monotonic=lambda: next(ticks), sleep=lambda _: None))
    monkeypatch.setattr(ControlPlane, "start_component", lambda _, name: server.steps.append(name))
    monkeypatch.setattr(ControlPlane, "failed", lambda _: "")
    plane = ControlPlane(tmp_path, {}, ports=lambda count: list(range(1, count + 1)))
    plane.start()
    plane.stop()
    assert server.steps == [ETCD, APISERVER, CRDS, CLASSES, ROLES, MANAGER]


class Thing:
    """An object that a weak reference can refer to."""


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def wait() -> None:
    while True:
        time.sleep(0.001)


def interrupted(run: Callable[[Interrupter], None]) -> None:
    """Run a function that a signal must interrupt."""
    with pytest.raises(KeyboardInterrupt), interruptible() as interrupter:
        run(interrupter)


def test_an_import_ends_before_the_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["import os, signal", "os.kill(os.getpid(), signal.SIGINT)", "done = True"]
    (tmp_path / "interrupted_module.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))

    def run(_: Interrupter) -> None:
        import interrupted_module  # type: ignore[import-not-found]  # noqa: F401, PLC0415

        wait()

    interrupted(run)
    assert sys.modules.pop("interrupted_module").done


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_in_a_callback_of_the_garbage_collector_is_not_lost() -> None:
    def run(interrupter: Interrupter) -> None:
        thing = Thing()
        kept = weakref.ref(thing, lambda _: interrupt())
        del thing
        assert kept() is None
        interrupter.check()

    interrupted(run)


def test_without_a_signal_the_check_raises_nothing_and_the_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)]
    with interruptible() as interrupter:
        interrupter.check()
    assert before == [signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)]
