"""This module runs experiments, one after the other, in a thread of its own. So the tables stay live meanwhile."""

import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import structs

from sandbox import processes
from sandbox.demo.experiments import Command, Experiment
from sandbox.demo.hints import Report
from sandbox.kubectl import KubectlMissing, kubectl_path

END_S = 3.0
PLUGIN = ("kubectl", "vmherd")


def as_process(command: Command) -> list[str]:
    """Raises KubectlMissing. The plugin is run without kubectl, because the PATH possibly has no `kubectl-vmherd`."""
    if command[:2] == PLUGIN:
        return [sys.executable, "-m", "plugin", *command[2:]]
    return [kubectl_path(), *command[1:]]


def environment(kubeconfig: Path) -> Mapping[str, str]:
    return {**processes.environment(), "KUBECONFIG": str(kubeconfig), "TMPDIR": str(kubeconfig.parent)}


class Runner:
    """Runs experiments in the order of the keys. `close` ends the present command."""

    def __init__(self, kubeconfig: Path) -> None:
        self._environment = environment(kubeconfig)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="experiments")
        self._lock = threading.Lock()
        self._waiting: list[Experiment] = []
        self._report = Report()
        self._process: subprocess.Popen[str] | None = None
        self._closed = False

    @property
    def report(self) -> Report:
        with self._lock:
            return structs.replace(self._report, waiting=tuple(f"{each.key} {each.name}" for each in self._waiting))

    def press(self, experiment: Experiment) -> None:
        """Run this experiment after the others. An experiment waits at most once."""
        with self._lock:
            if experiment not in self._waiting:
                self._waiting.append(experiment)
                self._thread.submit(self._work)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
        self._thread.shutdown(cancel_futures=True)

    def _work(self) -> None:
        with self._lock:
            experiment = self._waiting.pop(0)
            line, failed = f"{experiment.key}: {experiment.purpose}", f"{experiment.key} {experiment.name} failed"
            self._report = Report(line=line, commands=experiment.commands, running=True)
        try:
            for command in experiment.commands:
                if error := self._failure(command):
                    self._say(Report(line=failed, commands=(command,), error=error))
                    return
            self._say(Report(line=line, commands=experiment.commands))
        except (KubectlMissing, OSError) as error:
            self._say(Report(line=failed, error=one_line(str(error))))

    def _say(self, report: Report) -> None:
        with self._lock:
            self._report = report

    def _failure(self, command: Command) -> str:
        """Run a command. Return "" or the line in which the command says why it failed."""
        with self._lock:
            if self._closed:
                return "the demo ends"
            self._process = subprocess.Popen(
                as_process(command),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                process_group=0,  # Ctrl-C reaches the demo only, which ends this process
            )
        _, errors = self._process.communicate()
        if self._process.returncode:
            return one_line(errors) or f"{command[0]} exited with code {self._process.returncode}"
        return ""


def one_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
