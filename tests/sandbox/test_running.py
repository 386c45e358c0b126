"""A sandbox whose control plane has no processes: each signal ends it in order."""

import os
import signal
import time
from pathlib import Path

import pytest

from sandbox import running
from sandbox.home import Home
from sandbox.running import SIGNALS, interruptible, run_sandbox


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
