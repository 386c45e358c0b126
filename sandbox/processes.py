"""Starts child processes that end with their parent, and stops processes. It works only on Linux."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

LAUNCHER = Path(__file__).with_name("launch.py")

_EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST_PORT, _HIGHEST_PORT = 20000, 32767
_ENOUGH_PORTS = 1000
_RESERVED = 300
_reservations: deque[int] = deque()
"""The open files of the last _RESERVED reservations of this process: see `_reserve`."""

_POLL_S = 0.02


def with_death_signal(command: Sequence[str]) -> list[str]:
    """Return a command that runs `command`, but which the kernel kills if the thread that started it ends."""
    return [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), *command]


class Child:
    """One child process. Its output is appended to a log file. Only a `Spawner` creates instances."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                with_death_signal(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment(),
                # With a separate process group, Ctrl-C in the terminal reaches only the parent. The parent then stops
                # its children in order.
                process_group=0,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def stop(self, *, grace_s: float = 1.0) -> None:
        """Send SIGTERM and wait until the process has ended. Send SIGKILL after `grace_s` seconds."""
        if self.running:
            self._process.terminate()
            try:
                self._process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def log_tail(self, lines: int = 5) -> str:
        """Return the last `lines` lines of the log, or "" if the log cannot be read."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""


class Spawner:
    """Starts children in a thread that lives until `close`: the kernel kills a child with its parent thread."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")
        self._children: list[Child] = []

    def start(self, name: str, command: Sequence[str], log: Path) -> Child:
        return self._thread.submit(self._start, name, command, log).result()

    def close(self) -> None:
        self._thread.shutdown()
        for child in self._children:
            child.kill()

    def _start(self, name: str, command: Sequence[str], log: Path) -> Child:
        child = Child(name, command, log)
        # Store the child in this thread, because the caller of `start` may be interrupted.
        self._children.append(child)
        return child


def stop_process(pid: int, *, grace_s: float = 20.0) -> None:
    """Stop any process, after `grace_s` seconds with SIGKILL, and wait for its end. Raises PermissionError."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        give_up = time.monotonic() + grace_s
        if is_running(pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        while is_running(pid) and time.monotonic() < give_up:
            time.sleep(_POLL_S)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Return ports on loopback that no other process gets, not even a client, as it could an ephemeral one."""
    ports = _candidate_ports()
    candidates = iter(random.sample(ports, k=len(ports)))
    return [next(port for port in candidates if _reserve(port)) for _ in range(count)]


def _candidate_ports() -> range:
    highest = _HIGHEST_PORT
    with suppress(OSError):
        highest = int(_EPHEMERAL_PORTS.read_text().split()[0]) - 1
    return range(_LOWEST_PORT, (highest if highest > _LOWEST_PORT + _ENOUGH_PORTS else _HIGHEST_PORT) + 1)


def _reserve(port: int) -> bool:
    """Return False if the port is taken. The kernel gives the name of an abstract Unix socket only once."""
    with socket.socket(socket.AF_UNIX) as reservation, socket.socket() as probe:
        try:
            reservation.bind(f"\0vmherd-port-{port}")
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        _reservations.append(reservation.detach())
    if len(_reservations) > _RESERVED:
        os.close(_reservations.popleft())
    return True


def environment() -> Mapping[str, str]:
    """Return the environment of this process without proxy variables, because all connections are on loopback."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
