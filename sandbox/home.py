"""The directory of a sandbox: its lock, its state and the files that may be removed.

    sandbox.lock    locked by the process that runs the sandbox; its presence marks a sandbox directory
    state.json      that process and the components, each with its start time, so that a reused pid is recognized
    kubeconfig      of the cluster's administrator, while the sandbox is up
    logs/           of each component, the audit log, and the terminal output of a detached sandbox
    etcd/, pki/ ... the cluster's data and keys; removed before each start

After a sandbox has ended, only its logs are meaningful. They stay until the next sandbox starts.
"""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from sandbox.processes import ProcessRef, stop_process

_LOCK, _STATE, _LOGS = "sandbox.lock", "state.json", "logs"
_REMOVED_AT_END = ("kubeconfig", _STATE, "kube-controller-manager.kubeconfig", "audit-policy.yaml", "etcd", "pki")
_STATE_TIMEOUT_S = 2.0


class HomeError(Exception):
    """The directory cannot be used. `str()` says why."""


class Occupied(HomeError):
    """Another sandbox already runs in the directory."""


class State(Struct, frozen=True, kw_only=True):
    """The process that runs the sandbox, and its components. `parts` is empty until the components have started."""

    runner: ProcessRef
    parts: Mapping[str, ProcessRef] = {}
    ready: bool = False


class Home:
    """One sandbox directory. The module's docstring lists the files in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self.logs = self.directory / _LOGS
        self.kubeconfig = self.directory / "kubeconfig"
        self.output = self.logs / "sandbox.log"
        """The terminal output of a detached sandbox."""
        self._lock = self.directory / _LOCK
        self._state = self.directory / _STATE

    def exists(self) -> bool:
        """True if a sandbox runs or ran in this directory."""
        return self._lock.is_file()

    def prepare(self) -> None:
        """Make the directory a sandbox directory. Raises HomeError, for example if it has other files."""
        try:
            if not self.exists() and self.directory.is_dir() and any(self.directory.iterdir()):
                raise HomeError(f"{self.directory} has other files than a sandbox's: choose a new directory")
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock.touch(mode=0o600)
            self.logs.mkdir(exist_ok=True)
        except OSError as error:
            raise HomeError(f"{self.directory} cannot be used: {error.strerror}") from error

    @contextmanager
    def occupied(self) -> Iterator[None]:
        """Hold the directory's lock. Raises Occupied. The kernel releases the lock even if the process is killed."""
        with self._lock.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                state = self.state()
                who = f" (process {state.runner.pid})" if state else ""
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
        """Remove the files of an earlier sandbox and stop its leftover processes. The caller holds the lock."""
        self._stop(self.state())
        self.tidy()
        for log in self.logs.iterdir():
            if log != self.output:
                log.unlink()

    def evict(self) -> State | None:
        """Stop the sandbox in this directory and remove its files.

        Returns the processes that were alive, or None if there were none. Raises HomeError if the directory has no
        sandbox or the sandbox belongs to another user.
        """
        if not self.exists():
            raise HomeError(f"there is no sandbox in {self.directory}")
        try:
            stopped = self._stop(self._expected_state())
        except PermissionError as error:
            raise HomeError(f"the sandbox in {self.directory} belongs to another user") from error
        if not self.is_occupied():
            self.tidy()
        return stopped

    def _stop(self, state: State | None) -> State | None:
        """Stop the runner first, which stops its components in order. Then stop any component that is left."""
        if state is None:
            return None
        alive = {name: ref for name, ref in state.parts.items() if ref.alive}
        if not stop_process(state.runner) and not alive:
            return None
        for ref in alive.values():
            stop_process(ref)
        return State(runner=state.runner, parts=alive)

    def tidy(self) -> None:
        """Remove everything but the logs."""
        for name in _REMOVED_AT_END:
            path = self.directory / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _expected_state(self) -> State | None:
        """The state. If a sandbox has just started, wait a moment until it has written its state."""
        deadline = time.monotonic() + _STATE_TIMEOUT_S
        while (state := self.state()) is None and self.is_occupied() and time.monotonic() < deadline:
            time.sleep(0.02)
        return state
