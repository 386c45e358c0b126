"""Child processes that never outlive their parent, and the proof that a pid still is who it was. Linux only."""

from __future__ import annotations

import os
import random
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from msgspec import Struct

LAUNCHER = Path(__file__).with_name("launch.py")

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST_PORT, _HIGHEST_PORT = 20000, 32767
_ENOUGH_PORTS = 1000


class ProcessRef(Struct, frozen=True):
    """A process by pid and start, boot included: a pid alone may be a stranger's by now."""

    pid: int
    started: str

    @property
    def alive(self) -> bool:
        return bool(self.started) and _start_of(self.pid) == self.started


def reference(pid: int) -> ProcessRef:
    return ProcessRef(pid, _start_of(pid))


def _start_of(pid: int) -> str:
    """When the process was started, in the kernel's ticks; "" when there is none, or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else f"{_BOOT_ID.read_text().strip()}/{fields[19]}"


def launching(command: Sequence[str]) -> list[str]:
    """The command, so changed that its process is killed when the thread that starts it ends."""
    return [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), *command]


class Child:
    """One child process with a log file. Made by a Spawner."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                launching(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment(),
                # A group of its own: Ctrl-C in the terminal reaches the parent, which stops children in order.
                process_group=0,
            )

    @property
    def ref(self) -> ProcessRef:
        return reference(self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def stop(self, *, patience_s: float = 1.0) -> None:
        """Ask it to end, and make it, if it does not."""
        if self.running:
            self._process.terminate()
            try:
                self._process.wait(patience_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def last_words(self, lines: int = 5) -> str:
        """The end of its log, for an error message."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""


class Spawner:
    """Starts children, from a thread of its own that lives until `close`, and kills what is left of them then.

    The kernel's death signal follows the *thread* that started a child: one started from a worker thread of an event
    loop would be killed when that loop is closed.
    """

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
        # Noted in this thread: an interrupted caller may never learn of it.
        self._children.append(child)
        return child


def stop_process(ref: ProcessRef, *, patience_s: float = 20.0) -> bool:
    """Stop a process that is no child of ours, if it still is the one meant. False when it had gone already."""
    try:
        handle = os.pidfd_open(ref.pid)
    except ProcessLookupError:
        return False
    try:
        # Asked after the handle was made, which stays with one process even if the pid goes to another.
        if not ref.alive:
            return False
        for number in (signal.SIGTERM, signal.SIGKILL):
            signal.pidfd_send_signal(handle, number)
            if _ended(handle, patience_s):
                break
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)
    return True


def _ended(handle: int, within_s: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(within_s * 1000))


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody has at the moment, all different.

    They lie below the range that outgoing connections are given ports from. A client that keeps trying to reach a
    server that is down could be given the server's own port, connect to itself, and keep the server from coming back.
    """
    ports = _quiet_ports()
    candidates = iter(random.sample(ports, k=len(ports)))
    return [next(port for port in candidates if _is_free(port)) for _ in range(count)]


def _quiet_ports() -> range:
    try:
        highest = int(_EPHEMERAL_PORTS.read_text().split()[0]) - 1
    except OSError:
        highest = _HIGHEST_PORT
    return range(_LOWEST_PORT, (highest if highest > _LOWEST_PORT + _ENOUGH_PORTS else _HIGHEST_PORT) + 1)


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as sock:
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _environment() -> Mapping[str, str]:
    """The parent's, less the proxies: all of this is on loopback."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
