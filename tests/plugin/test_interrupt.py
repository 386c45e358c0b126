"""Ctrl-C ends each command with the exit code 130, and prints no traceback."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def silent_server() -> Iterator[tuple[socket.socket, str]]:
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        yield server, f"http://127.0.0.1:{server.getsockname()[1]}"


def start(*words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "plugin", *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("line", ["rollout status vmpool/web", "takeover --undo", "list -A"])
def test_ctrl_c_while_a_command_waits_for_the_server(silent_server: tuple[socket.socket, str], line: str):
    server, url = silent_server
    process = start(*line.split(), f"--server={url}")
    connection, _ = server.accept()
    with connection:
        connection.recv(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.strip()) == (130, "", "")


def test_a_server_that_says_nothing_ends_a_command_after_the_time_of_a_request(
    silent_server: tuple[socket.socket, str],
):
    process = start("why", "vmpool/web", f"--server={silent_server[1]}", "--request-timeout=1s")
    out, err = process.communicate(timeout=60)
    said = f"error: no answer from {silent_server[1].removeprefix('http://')} in time"
    assert (process.returncode, out, err.splitlines()[-1]) == (1, "", said)


def test_ctrl_c_during_the_start_prints_no_traceback():
    code = "import sys, plugin.__main__ as m, plugin\nclass Hit:\n  def find_spec(self, *a): raise KeyboardInterrupt\n"
    code += "sys.meta_path.insert(0, Hit())\nsys.exit(m.main())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (130, "")


def test_a_reader_that_ends_early_causes_no_message():
    with start("--help") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
