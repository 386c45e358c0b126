"""The controller and the simulator as processes."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox.admin import Admin
from sandbox.controlplane import ControlPlane
from sandbox.processes import free_ports
from tests.barrier import TIMER_S, settled
from tests.controlplane.forked import ForkedProgram
from tests.controlplane.waits import WORK_S, eventually, note_wait
from tests.release import Pod, pod

CONTROLLER = "controller"
LEASE_FLAGS = ("--lease-duration", "90s", "--renew-deadline", "80s", "--retry-period", "1s")
"""The lease of the tests' controllers: a leader keeps it when a busy machine stops it, or the API server, for some
seconds.
"""

SHORT_LEASE = ("--lease-duration", "10s", "--renew-deadline", "8s", "--retry-period", "400ms")
"""Flags for tests in which a lease expires."""

ANSWERS_WITHIN_S = 30


class ControllerProcess:
    def __init__(
        self,
        process: subprocess.Popen[bytes] | ForkedProgram,
        log: Path,
        metrics_port: int,
        health_port: int,
        own: Pod | None = None,
    ) -> None:
        self.process = process
        self.log = log
        self._lines: list[dict[str, Any]] = []
        self._read_to = 0
        self.pod = own
        self.metrics_url = f"http://127.0.0.1:{metrics_port}/metrics"
        self.health_url = f"http://127.0.0.1:{health_port}"

    def lines(self, **wanted: object) -> list[dict[str, Any]]:
        self._read_on()
        return [line for line in self._lines if all(line.get(name) == value for name, value in wanted.items())]

    def _read_on(self) -> None:
        """Parse only the new lines, because the log is long and tests read it many times a second."""
        with self.log.open("rb") as log:
            log.seek(self._read_to)
            new, end, _rest = log.read().rpartition(b"\n")
        self._read_to += len(new) + len(end)
        self._lines += [json.loads(line) for line in new.splitlines() if line.startswith(b"{")]

    def passes(self, namespace: str) -> int:
        return len(self.lines(msg="reconciled", namespace=namespace))

    @property
    def working(self) -> bool:
        if self.process.poll() is not None:
            pytest.fail(f"the controller ended with {self.process.returncode}:\n{self.log.read_text()[-3000:]}")
        return bool(self.lines(msg="working"))

    def metrics(self) -> str:
        with urllib.request.urlopen(self.metrics_url, timeout=ANSWERS_WITHIN_S) as answer:
            return str(answer.read().decode())

    def health(self, endpoint: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"{self.health_url}/{endpoint}", timeout=ANSWERS_WITHIN_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def settle(self, namespace: str, admin: Admin, *, events: bool = False, no_timer_within_s: float = TIMER_S) -> None:
        """Wait until the controller has seen all writes and has nothing to do in the namespace. See `tests.barrier`."""
        began = time.monotonic()
        settled(self.health_url, admin, namespace=namespace, events=events, no_timer_within_s=no_timer_within_s)
        note_wait(time.monotonic() - began, "the controller is at rest")

    @property
    def credential(self) -> str:
        """The credential ID of the process in the audit log. Other Pods with the same account have other IDs."""
        assert self.pod is not None, "it was given a kubeconfig"
        return self.pod.credential

    def kill(self) -> None:
        """Kill the process without warning, like a power failure of the node."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Send SIGTERM, wait, and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextmanager
def controller_process(
    who: ControlPlane | Pod | Path,
    directory: Path,
    *flags: str,
    wait: bool = True,
    through: Callable[[Path, str], Path] | None = None,
    program: str = CONTROLLER,
) -> Iterator[ControllerProcess]:
    """Run the controller, with free ports and a JSON log, while the block runs. The argument `who` decides the
    controller's permissions and its first flags:

    - A control plane: the arguments, environment and account of the Deployment in the chart's release. After the block,
      the test fails if a permission was missing.
    - A Pod: the Pod's arguments, environment and account. A missing permission does not fail the test.
    - A path of a kubeconfig: the permissions of that kubeconfig, and only the given flags.

    `through` writes the kubeconfig for a token, for example with the address of a proxy. `program` is the module to
    run. Only the module `controller` is forked (see tests/controlplane/forked.py).
    """
    own, since = None, 0
    arguments = ["--kubeconfig", str(who)]
    if not isinstance(who, Path):
        own, since = (who, 0) if isinstance(who, Pod) else (pod(who, *flags), who.audit_position())
        kubeconfig = directory / f"{own.account}-{own.credential[-12:]}.kubeconfig"
        if through is None:
            own.plane.write_kubeconfig(kubeconfig, own.account, token=own.token)
        else:
            through(kubeconfig, own.token)
        arguments = [*own.arguments, "--kubeconfig", str(kubeconfig)]
    metrics_port, health_port = free_ports(2)
    command = ["run", *arguments, *LEASE_FLAGS, "--log-format", "json", "--log-level", "debug"]
    command += ["--metrics-bind-address", f"127.0.0.1:{metrics_port}"]
    command += ["--health-probe-bind-address", f"127.0.0.1:{health_port}", "--debug-endpoints"]
    command += flags  # if a flag is given twice, the last value counts
    log = directory / f"controller-{metrics_port}.log"
    log.touch()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VMHERD_")}
    environment |= own.environment if own else {}
    process: subprocess.Popen[bytes] | ForkedProgram
    if program == CONTROLLER:
        process = ForkedProgram(program, command, log, environment=environment)
    else:
        with log.open("wb") as output:
            started = [sys.executable, "-m", program, *command]
            process = subprocess.Popen(started, stdout=output, stderr=subprocess.STDOUT, env=environment)
    running = ControllerProcess(process, log, metrics_port, health_port, own)
    try:
        if wait:
            eventually(lambda: running.working, within_s=WORK_S, what="the controller is working")
        yield running
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
    lacking = own.lacks(since) if own is not None and own is not who else ()
    assert not lacking, f"{own and own.account} lacks permissions: {sorted(lacking)}"


@contextmanager
def simulator(plane: ControlPlane, *flags: str) -> Iterator[None]:
    """Run the simulator of VMs and VMIs while the block runs. It shortens KubeVirt's backoff to a twentieth."""
    log = plane.logs / f"simulator-{uuid.uuid4().hex[:6]}.log"
    arguments = [f"--kubeconfig={plane.kubeconfig}", "--time-scale=0.05", *flags]
    # A process group of its own: Ctrl-C ends the tests first.
    process = ForkedProgram("sandbox.simulator", arguments, log, own_group=True)
    try:
        yield
        ended = process.poll()
        assert ended is None, f"the simulator ended with {ended}:\n{log.read_text()[-3000:]}"
    finally:
        process.terminate()
        process.wait(30)
