"""The project's programs in forked processes.

The import of the controller needs 0.6 s of CPU time, and the tests start the controller hundreds of times. So one
process for each pytest worker imports the programs, and forks itself for each start.
"""

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PRELOADED = ["controller.app", "controller.commands.run", "controller.commands.takeover", "controller.commands.cleanup"]
PRELOADED += ["sandbox.simulator", "uvloop", "tests.controlplane.forked", "tests.controlplane.short_delays"]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(PRELOADED)


class ForkedProgram:
    """A running program. Its methods are those of `subprocess.Popen`.

    `module` is the module that `python -m` would run. The standard output and the standard error go to `output`, or
    the standard error goes to `errors`.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        output: Path,
        *,
        errors: Path | None = None,
        environment: Mapping[str, str] | None = None,
        own_group: bool = False,
    ) -> None:
        given = dict(os.environ if environment is None else environment)
        names = (str(output), str(errors or output))
        self._process = _context.Process(target=_run, args=(module, list(arguments), names, given, own_group))
        self._process.daemon = True
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self) -> int | None:
        """The exit code, or None while the program runs. If a signal ended the program, its negative number."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the program and return its exit code. Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(
    module: str, arguments: list[str], outputs: tuple[str, str], environment: dict[str, str], own_group: bool
) -> None:
    """Run a module as `python -m` does. This function runs in the forked process."""
    if own_group:
        os.setpgid(0, 0)
    for number, name in enumerate(outputs, start=1):
        opened = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115  it stays open until the process ends
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, *arguments]
    sys.modules.pop(module, None)  # Python warns if a module that it runs is already imported
    runpy.run_module(module, run_name="__main__", alter_sys=True)
