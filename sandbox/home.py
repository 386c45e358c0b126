"""The directory of a sandbox: who runs in it, and what of it may be removed.

    sandbox.lock    locked by the process that runs the sandbox, for as long as it does; marks the directory as ours
    state.json      that process and the parts, each with its start, so that nobody takes a stranger for one of them
    kubeconfig      of the cluster's admin, while the sandbox is up
    logs/           of each part, the audit log, and, for a detached sandbox, what it would have said on a terminal
    etcd/, pki/ ... the cluster's data and keys; it begins empty each time

When a sandbox ends, however it does, only its logs have a meaning. They stay until the next one begins.
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
_PASSING = ("kubeconfig", _STATE, "kube-controller-manager.kubeconfig", "audit-policy.yaml", "etcd", "pki")
_STATE_WITHIN_S = 2.0


class HomeError(Exception):
    """The directory cannot be used. `str()` says why."""


class Occupied(HomeError):
    """A sandbox runs in it already."""


class State(Struct, frozen=True, kw_only=True):
    """Who runs here. `parts` fill up as they are started."""

    runner: ProcessRef
    parts: Mapping[str, ProcessRef] = {}
    ready: bool = False


class Home:
    """See the module's contract."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self.logs = self.directory / _LOGS
        self.kubeconfig = self.directory / "kubeconfig"
        self.output = self.logs / "sandbox.log"
        """What a detached sandbox says."""
        self._lock = self.directory / _LOCK
        self._state = self.directory / _STATE

    def exists(self) -> bool:
        """Whether this directory is, or was, a sandbox's."""
        return self._lock.is_file()

    def prepare(self) -> None:
        """Make it a sandbox's directory. Raises HomeError, above all when it has somebody's files in it."""
        try:
            if not self.exists() and self.directory.is_dir() and any(self.directory.iterdir()):
                raise HomeError(f"{self.directory} has files in it that are no sandbox's: name a new directory")
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock.touch(mode=0o600)
            self.logs.mkdir(exist_ok=True)
        except OSError as error:
            raise HomeError(f"{self.directory} cannot be used: {error.strerror}") from error

    @contextmanager
    def occupied(self) -> Iterator[None]:
        """Have the directory to oneself. Raises Occupied; released by the kernel even if the process is killed."""
        with self._lock.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                state = self.state()
                who = f" (process {state.runner.pid})" if state else ""
                raise Occupied(f"a sandbox runs in {self.directory} already{who}") from None
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
        whole = self._state.with_suffix(".new")
        whole.write_bytes(msgspec.json.encode(state))
        whole.replace(self._state)

    def clear(self) -> None:
        """Have it empty for a new sandbox. Whoever calls has occupied it, so what is left is of one that was killed."""
        self._stop(self.state())
        self.tidy()
        for log in self.logs.iterdir():
            if log != self.output:
                log.unlink()

    def evict(self) -> State | None:
        """Stop whoever runs here and tidy up. Returns what of it was alive, None when nothing was.

        Raises HomeError when there is no sandbox, or another user's.
        """
        if not self.exists():
            raise HomeError(f"there is no sandbox in {self.directory}")
        try:
            stopped = self._stop(self._expected_state())
        except PermissionError as error:
            raise HomeError(f"the sandbox in {self.directory} is another user's") from error
        if not self.is_occupied():
            self.tidy()
        return stopped

    def _stop(self, state: State | None) -> State | None:
        """The runner first, which stops its parts in their order; then any part that is left."""
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
        for name in _PASSING:
            path = self.directory / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _expected_state(self) -> State | None:
        """The state; a sandbox that has only just begun is given the time to write it."""
        give_up = time.monotonic() + _STATE_WITHIN_S
        while (state := self.state()) is None and self.is_occupied() and time.monotonic() < give_up:
            time.sleep(0.02)
        return state
