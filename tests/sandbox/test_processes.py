"""Child processes, and the end of other processes. The tests use real processes that only sleep."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sandbox.processes import Spawner, free_ports, is_running, stop_process
from tests.controlplane.waits import eventually

SLEEP = ["/bin/sleep", "600"]
DEAF = ["/bin/sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 600; done"]


@pytest.fixture
def spawner() -> Iterator[Spawner]:
    spawner = Spawner()
    yield spawner
    spawner.close()


@pytest.mark.parametrize("moment", ["just begun", "its program runs"])
def test_a_child_dies_with_a_parent_that_is_killed(tmp_path: Path, moment: str) -> None:
    code = (
        "import sys, time; from pathlib import Path; from sandbox.processes import Spawner\n"
        f"child = Spawner().start('sleep', {SLEEP}, Path({str(tmp_path / 'log')!r}))\n"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline() if parent.stdout else 0)
        if moment == "its program runs":
            eventually(lambda: runs_its_program(child))
        parent.kill()
    eventually(lambda: not is_running(child))


async def test_a_child_that_was_started_from_a_worker_thread_outlives_that_thread(
    spawner: Spawner, tmp_path: Path
) -> None:
    child = await asyncio.to_thread(spawner.start, "sleep", SLEEP, tmp_path / "log")
    eventually(lambda: runs_its_program(child.pid))
    await asyncio.get_running_loop().shutdown_default_executor()
    assert not ends_within(child.pid, 0.3)
    child.stop()


def runs_its_program(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"/bin/sleep")


def ends_within(pid: int, seconds: float) -> bool:
    give_up = time.monotonic() + seconds
    while is_running(pid) and time.monotonic() < give_up:
        time.sleep(0.01)
    return not is_running(pid)


def test_a_child_that_ignores_sigterm_is_killed(spawner: Spawner, tmp_path: Path) -> None:
    child = spawner.start("deaf", DEAF, tmp_path / "log")
    eventually(lambda: child.log_tail() == "deaf")
    child.stop(grace_s=0.05)
    assert not child.running


def test_a_missing_program_is_reported_in_its_log(spawner: Spawner, tmp_path: Path) -> None:
    child = spawner.start("nothing", ["/nowhere/nothing"], tmp_path / "log")
    eventually(lambda: not child.running)
    assert child.log_tail() == "/nowhere/nothing: No such file or directory"


def test_a_signal_to_the_parents_group_does_not_reach_the_child(spawner: Spawner, tmp_path: Path) -> None:
    child = spawner.start("sleep", SLEEP, tmp_path / "log")
    assert os.getpgid(child.pid) not in (0, os.getpgid(0))
    child.stop()


def test_a_process_that_is_not_a_child_of_the_sandbox_and_ignores_sigterm_is_killed() -> None:
    with subprocess.Popen(DEAF, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        stop_process(process.pid, grace_s=0.05)
        assert process.wait() == -signal.SIGKILL


def test_ports_are_free_different_and_never_given_to_outgoing_connections() -> None:
    lowest, highest = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = free_ports(50)
    assert len(set(ports)) == len(ports)
    assert not any(lowest <= port <= highest for port in ports)
    for port in ports:
        with closing(socket.socket()) as sock:
            sock.bind(("127.0.0.1", port))


def test_a_port_that_a_process_has_just_got_is_not_given_to_another_process() -> None:
    ports = free_ports(4)
    code = f"from sandbox import processes; processes._candidate_ports = lambda: {ports}; processes.free_ports(1)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "StopIteration" in other.stderr
