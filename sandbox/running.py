"""Runs a sandbox in its directory until a signal comes. A sandbox is a control plane and a simulator.

    sandbox.lock    the main process of the sandbox locks it while the sandbox runs
    state.json      the pid of the main process; it counts only while the lock is held
    kubeconfig      the credentials of the cluster's administrator; the file exists only while the sandbox runs
    logs/           all logs; they stay until the next sandbox starts
    etcd/, pki/ ... the cluster's data and keys; they are removed when the sandbox ends and before each start

During the start, a signal interrupts the current action. Later, it starts an orderly shutdown, without further signals.
"""

import asyncio
import fcntl
import os
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from sandbox.binaries import find_binaries
from sandbox.controlplane import ControlPlane
from sandbox.processes import free_ports, stop_process

_LOCK, _STATE, _LOGS = "sandbox.lock", "state.json", "logs"
_REMOVED_AT_END = ("kubeconfig", _STATE, "kube-controller-manager.kubeconfig", "audit-policy.yaml", "etcd", "pki")
_STATE_TIMEOUT_S = 2.0


class HomeError(Exception):
    """Raised if a directory cannot be used as a sandbox directory. `str()` returns the reason."""


class Occupied(HomeError):
    """Raised if another sandbox already runs in the directory."""


class State(Struct, frozen=True, kw_only=True):
    """The content of the state file: the pid of the main process, and whether all components have started."""

    pid: int
    ready: bool = False


class Home:
    """One sandbox directory. The docstring of this module lists the files of the directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self.logs = self.directory / _LOGS
        self.kubeconfig = self.directory / "kubeconfig"
        self.output = self.logs / "sandbox.log"
        self._lock = self.directory / _LOCK
        self._state = self.directory / _STATE

    def prepare(self) -> None:
        """Create the directory and what belongs in it. Raises HomeError if it has other files or is not writable."""
        try:
            if not self._lock.is_file() and self.directory.is_dir() and any(self.directory.iterdir()):
                raise HomeError(f"{self.directory} has other files than a sandbox's: choose a new directory")
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock.touch(mode=0o600)
            self.logs.mkdir(exist_ok=True)
        except OSError as error:
            raise HomeError(f"{self.directory} cannot be used: {error.strerror}") from error

    @contextmanager
    def occupied(self) -> Iterator[None]:
        """Lock the directory while the block or this process runs. Raises Occupied if another process has the lock."""
        with self._lock.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                state = self.state()
                who = f" (process {state.pid})" if state else ""
                raise Occupied(f"a sandbox already runs in {self.directory}{who}") from None
            yield

    def is_occupied(self) -> bool:
        try:
            with self.occupied():
                return False
        except Occupied:
            return True

    def state(self) -> State | None:
        try:
            return msgspec.json.decode(self._state.read_bytes(), type=State)
        except (OSError, msgspec.DecodeError):
            return None

    def write_state(self, state: State) -> None:
        temporary = self._state.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode(state))
        temporary.replace(self._state)

    def clear(self) -> None:
        """Remove the files of an earlier sandbox, but not `output` of the new one. Needs the lock of `occupied`."""
        self.tidy()
        for log in self.logs.iterdir():
            if log != self.output:
                log.unlink()

    def evict(self) -> State | None:
        """Stop and remove the sandbox, and return its state, or None if none runs. Raises HomeError."""
        if not self._lock.is_file():
            raise HomeError(f"there is no sandbox in {self.directory}")
        state = self._expected_state()
        running = state if self.is_occupied() else None
        try:
            if running is not None:
                stop_process(running.pid)
        except PermissionError as error:
            raise HomeError(f"the sandbox in {self.directory} belongs to another user") from error
        if not self.is_occupied():
            self.tidy()
        return running

    def tidy(self) -> None:
        for name in _REMOVED_AT_END:
            path = self.directory / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _expected_state(self) -> State | None:
        """Return the state, or None. A starting sandbox gets `_STATE_TIMEOUT_S` seconds to write it."""
        deadline = time.monotonic() + _STATE_TIMEOUT_S
        while (state := self.state()) is None and self.is_occupied() and time.monotonic() < deadline:
            time.sleep(0.02)
        return state


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_HANDLED = (*SIGNALS, signal.SIGALRM)
_LATER_S = 0.02
"""The seconds until the next attempt to interrupt a program that is importing a module."""
POLL_INTERVAL_S = 0.5
Simulate: TypeAlias = Callable[[Path], Coroutine[Any, Any, None]]
"""A function that simulates virtual machines on the cluster of a kubeconfig. It runs until the task is cancelled."""

_Handler: TypeAlias = Callable[[int, FrameType | None], None] | signal.Handlers


class SandboxError(Exception):
    """Raised if a component of the sandbox ends by itself. `str()` returns the component and the reason."""


class Interrupter:
    """A signal handler that raises KeyboardInterrupt in the main thread.

    During an import it waits, because an exception inside Python's import system can leave a lock behind. Python drops
    an exception that is raised in a callback of the garbage collector. `check` raises it again.
    """

    def __init__(self) -> None:
        self._came = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._came = True
        if _imports(frame):
            signal.setitimer(signal.ITIMER_REAL, _LATER_S)
        else:
            self.check()

    def check(self) -> None:
        if self._came:
            raise KeyboardInterrupt


def run_sandbox(
    home: Home, *, simulate: Simulate | None, on_ready: Callable[[], None], interrupter: Interrupter
) -> None:
    """Run the sandbox until a signal comes, inside `Home.occupied` and `interruptible`.

    Raises BinariesUnavailable, ControlPlaneError or CrdError if it does not start, SandboxError if a component ends,
    and KeyboardInterrupt if a signal comes before it is ready.
    """
    plane: ControlPlane | None = None
    try:
        home.clear()
        home.write_state(State(pid=os.getpid()))
        plane = ControlPlane(home.directory, find_binaries())
        plane.start()

        def ready() -> None:
            home.write_state(State(pid=os.getpid(), ready=True))
            on_ready()

        interrupter.check()
        asyncio.run(_run_until_signal(plane, simulate, ready))
    finally:
        handle_signals(signal.SIG_IGN)
        if plane is not None:
            plane.stop()
        home.tidy()


@contextmanager
def temporary_plane(purpose: str) -> Iterator[ControlPlane]:
    """Raises BinariesUnavailable, ControlPlaneError or CrdError."""
    with tempfile.TemporaryDirectory(prefix=f"vmherd-{purpose}-") as directory:
        plane = ControlPlane(Path(directory), find_binaries())
        try:
            plane.start()
            yield plane
        finally:
            handle_signals(signal.SIG_IGN)  # a second Ctrl-C must not interrupt the removal of files
            plane.stop()


def start_controller(plane: ControlPlane, *options: str) -> int:
    metrics, health = free_ports(2)
    addresses = f"--metrics-bind-address=127.0.0.1:{metrics}", f"--health-probe-bind-address=127.0.0.1:{health}"
    plane.start_program("controller", "controller", "run", *addresses, "--log-format=json", *options)
    return metrics


@contextmanager
def interruptible() -> Iterator[Interrupter]:
    """Raise KeyboardInterrupt in the block when one of SIGNALS comes, unless it is ignored already, as by nohup."""
    before = {number: signal.getsignal(number) for number in _HANDLED}
    interrupter = Interrupter()
    handle_signals(interrupter)
    try:
        yield interrupter
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


async def _run_until_signal(plane: ControlPlane, simulate: Simulate | None, ready: Callable[[], None]) -> None:
    """Call `ready` and run until a signal comes, also during this call. Raises SandboxError if a component ends."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop.set)

    handle_signals(ask_to_stop)
    try:
        ready()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_watch_components(plane), name="watch-components")]
            if simulate:
                tasks.append(group.create_task(_simulate(simulate, plane.kubeconfig), name="simulate"))
            await stop.wait()
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finally:
        handle_signals(signal.SIG_IGN)


async def _watch_components(plane: ControlPlane) -> None:
    while True:
        await asyncio.sleep(POLL_INTERVAL_S)
        if failure := plane.failed():
            raise SandboxError(failure)


async def _simulate(simulate: Simulate, kubeconfig: Path) -> None:
    try:
        await simulate(kubeconfig)
    except Exception as error:
        traceback.print_exception(error)  # print the traceback, because this error is a bug and not a user's mistake
        raise SandboxError("the simulator failed") from error
    raise SandboxError("the simulator ended unexpectedly")


def handle_signals(handler: _Handler) -> None:
    """Set the handler of the signals that end a program. Signals that are already ignored stay ignored."""
    for number in _HANDLED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
