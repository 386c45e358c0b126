"""The program from start to end, as a process: signals, ports, and a lease that is lost."""

import signal
import socket
from pathlib import Path

import pytest

from sandbox.controlplane import APISERVER, ControlPlane
from tests.cluster import Kubectl
from tests.controlplane.programs import controller_process
from tests.controlplane.waits import eventually
from tests.faults.plane import frozen

pytestmark = pytest.mark.cluster

NOT_FORKED = "controller.__main__"
"""The same program, in a process that Python has just started."""

IN_BETWEEN = ("reconciled", "event loop was blocked")
"""The log lines that may come at any time. A reconciliation may run during the end, and a busy machine blocks the loop.
"""


def test_sigterm_ends_the_program_in_order_with_exit_code_0(control_plane: ControlPlane, tmp_path: Path) -> None:
    flags = ("--leader-election-id", "orderly")
    with controller_process(control_plane.kubeconfig, tmp_path, *flags, program=NOT_FORKED) as program:
        assert program.health("readyz") == (200, "ok")
        assert program.stop() == 0
        told = [line["msg"] for line in program.lines() if line["msg"] not in IN_BETWEEN]
    assert told[-2:] == ["stopping", "released the lease"]


def test_a_port_in_use_gives_one_line_and_exit_code_1(control_plane: ControlPlane, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flags = ("--metrics-bind-address", f"127.0.0.1:{port}", "--no-leader-elect")
        with controller_process(control_plane.kubeconfig, tmp_path, *flags, wait=False) as program:
            assert program.process.wait(30) == 1
            (line,) = program.log.read_text().splitlines()
    assert line.startswith(f"vmherd: cannot listen on 127.0.0.1:{port}: address already in use")


def test_the_second_signal_ends_the_program_at_once_with_exit_code_1(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    with controller_process(control_plane.kubeconfig, tmp_path, "--leader-election-id", "impatient") as program:
        with frozen(control_plane, APISERVER):  # the program cannot release its lease
            program.process.send_signal(signal.SIGTERM)
            eventually(lambda: program.lines(msg="stopping"), what="the program is stopping")
            program.process.send_signal(signal.SIGINT)
            assert program.process.wait(30) == 1
        last = program.lines()[-1]["msg"]
    assert last == "second signal, ending immediately"


def test_a_leader_whose_lease_is_taken_ends_with_one_line_and_exit_code_1(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    often = ("--leader-election-id", "stolen", "--retry-period", "400ms")
    with controller_process(control_plane.kubeconfig, tmp_path, *often) as program:
        take = '{"spec":{"holderIdentity":"another","leaseDurationSeconds":600}}'
        Kubectl(control_plane.kubeconfig, "default")("patch", "lease", "stolen", "--type=merge", "-p", take)
        eventually(lambda: program.process.poll() is not None, what="the leader leaves")
        assert program.process.returncode == 1
        told = [line for line in program.log.read_text().splitlines() if line.startswith("vmherd:")]
    assert told == ["vmherd: the lease default/stolen is held by another"]
