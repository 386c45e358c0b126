"""This module manages the directory of a sandbox: the lock, the state file, the logs and the other files.

    sandbox.lock    the lock file; the main process of the sandbox locks it while the sandbox runs
    state.json      the pid of the main process; it counts only while the lock is held
    kubeconfig      the credentials of the cluster's administrator; the file exists only while the sandbox runs
    logs/           the log of each component, the audit log, and the terminal output of a detached sandbox
    etcd/, pki/ ... the cluster's data and keys; they are removed when the sandbox ends and before each start

After a sandbox has ended, only its logs are useful. The logs stay until the next sandbox starts.
"""

import fcntl
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from sandbox.processes import stop_process

_LOCK, _STATE, _LOGS = "sandbox.lock", "state.json", "logs"
_REMOVED_AT_END = ("kubeconfig", _STATE, "kube-controller-manager.kubeconfig", "audit-policy.yaml", "etcd", "pki")
_STATE_TIMEOUT_S = 2.0


class HomeError(Exception):
    """Raised if a directory cannot be used as a sandbox directory. `str()` returns the reason."""


class Occupied(HomeError):
    """Raised if another sandbox already runs in the directory."""


class State(Struct, frozen=True, kw_only=True):
    """The content of the state file: the pid of the main process, and whether all components have started.

    If this process ends, the kernel kills the components.
    """

    pid: int
    ready: bool = False


class Home:
    """One sandbox directory. The docstring of this module lists the files of the directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self.logs = self.directory / _LOGS
        self.kubeconfig = self.directory / "kubeconfig"
        self.output = self.logs / "sandbox.log"
        """The path of the file with the terminal output of a detached sandbox."""
        self._lock = self.directory / _LOCK
        self._state = self.directory / _STATE

    def prepare(self) -> None:
        """Create the directory, its lock file and its log directory, if they are missing.

        Raises HomeError if the directory contains other files or cannot be written.
        """
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
        """Lock the directory while the block runs. Raises Occupied if another process has locked the directory.

        If this process is killed, the kernel releases the lock.
        """
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
        """Remove the files of an earlier sandbox.

        The file `output`, with the terminal output of the new sandbox, is not removed. The caller must have locked the
        directory with `occupied`.
        """
        self.tidy()
        for log in self.logs.iterdir():
            if log != self.output:
                log.unlink()

    def evict(self) -> State | None:
        """Stop the sandbox in this directory and remove its files.

        Return its state, or None if no sandbox ran. Raises HomeError if no sandbox ever ran in the directory, or if
        another user runs the sandbox.
        """
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
        """Return the content of the state file, or None if there is no state file.

        If a starting sandbox has not written the file yet, wait at most `_STATE_TIMEOUT_S` seconds.
        """
        deadline = time.monotonic() + _STATE_TIMEOUT_S
        while (state := self.state()) is None and self.is_occupied() and time.monotonic() < deadline:
            time.sleep(0.02)
        return state
