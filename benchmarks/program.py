"""Runs the controller as a process and reads its CPU time and memory from the kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


class Program:
    """A running `vmherd run`."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def cpu_s(self) -> float:
        """Return the user and system CPU time of the process since its start."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    @property
    def rss_mb(self) -> float:
        return self._status("VmRSS")

    def _status(self, name: str) -> float:
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
        raise LookupError(name)

    def has_logged(self, message: str) -> bool:
        lines = self._log.read_text().splitlines()
        return any(json.loads(line).get("msg") == message for line in lines if line.startswith("{"))


@contextmanager
def running_program(kubeconfig: Path, log: Path, *flags: str) -> Iterator[Program]:
    """Start the controller and wait until it works. Stop it at the end of the block."""
    command = [sys.executable, "-m", "controller", "run", "--kubeconfig", str(kubeconfig), "--log-format", "json"]
    command += ["--metrics-bind-address", "0", "--health-probe-bind-address", "0", *flags]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    program = Program(process, log)
    try:
        deadline = time.monotonic() + 60
        while not program.has_logged("working"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the controller did not start:\n{log.read_text()}")
            time.sleep(0.05)
        yield program
    finally:
        process.terminate()
        process.wait(30)
