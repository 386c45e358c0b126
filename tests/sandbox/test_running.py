"""A sandbox whose control plane has no processes: a signal ends it in order, and is not lost during its start."""

import itertools
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sandbox import controlplane, running
from sandbox.admin import Rejected
from sandbox.controlplane import APISERVER, DEFAULT_ACCOUNT, ETCD, MANAGER, ControlPlane
from sandbox.running import SIGNALS, Home, HomeError, Interrupter, State, interruptible, run_sandbox


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


# The directory of a sandbox, without a control plane in it


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "sandbox")
    home.prepare()
    return home


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["/bin/sleep", "600"]) as process:
        yield process
        process.kill()


def test_a_directory_with_other_files_is_refused_and_not_changed(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "mine").write_text("precious")
    with pytest.raises(HomeError, match="has other files than a sandbox's"):
        Home(tmp_path).prepare()
    assert [path.name for path in tmp_path.rglob("*")] == ["logs", "mine"]


def test_the_directory_of_an_earlier_sandbox_can_be_used_again(home: Home) -> None:
    (home.logs / "etcd.log").write_text("old")
    home.prepare()
    with home.occupied():
        home.clear()
    assert not list(home.logs.iterdir())


def test_a_directory_that_cannot_be_created_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeError, match=r"cannot be used: Not a directory$"):
        Home(tmp_path / "file" / "sandbox").prepare()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}'])
def test_a_state_that_cannot_be_read_counts_as_none(home: Home, content: str) -> None:
    (home.directory / "state.json").write_text(content)
    assert home.state() is None
    assert home.evict() is None


def test_another_process_that_has_the_pid_of_an_ended_sandbox_is_not_stopped(
    home: Home, sleeper: subprocess.Popen[bytes]
) -> None:
    home.write_state(State(pid=sleeper.pid))
    assert home.evict() is None
    assert sleeper.poll() is None


def test_the_process_that_runs_the_sandbox_is_stopped(home: Home, sleeper: subprocess.Popen[bytes]) -> None:
    state = State(pid=sleeper.pid)
    with home.occupied():
        home.write_state(state)
        assert home.evict() == state
    assert sleeper.wait() == -signal.SIGTERM


def test_the_files_of_a_killed_sandbox_are_removed_except_its_logs(home: Home) -> None:
    home.write_state(State(pid=4711))
    home.kubeconfig.write_text("old")
    (home.directory / "pki").mkdir()
    (home.directory / "pki" / "admin.key").write_text("old")
    (home.logs / "etcd.log").write_text("why it died")
    assert home.evict() is None
    assert {path.name for path in home.directory.iterdir()} == {"sandbox.lock", "logs"}
    assert (home.logs / "etcd.log").read_text() == "why it died"


def test_a_link_to_somewhere_else_is_removed_and_not_followed(home: Home, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine").write_text("precious")
    (home.directory / "etcd").symlink_to(tmp_path / "elsewhere")
    home.tidy()
    assert not (home.directory / "etcd").is_symlink()
    assert (tmp_path / "elsewhere" / "mine").exists()
