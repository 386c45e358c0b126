"""Forked programs behave as programs that Python has just started."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.controlplane.forked import ForkedProgram


def run(directory: Path, *arguments: str) -> tuple[int, str, str]:
    output, errors = directory / "output", directory / "errors"
    code = ForkedProgram("controller", arguments, output, errors=errors).wait(30)
    return code, output.read_text(), errors.read_text()


def test_a_forked_program_has_the_exit_code_and_the_outputs_of_a_new_process(tmp_path: Path) -> None:
    for arguments in (("version",), ("run", "--frobnicate"), ("takeover", "--kubeconfig", "/nowhere")):
        command = [sys.executable, "-m", "controller", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        (directory := tmp_path / arguments[0]).mkdir()
        assert run(directory, *arguments) == (done.returncode, done.stdout, done.stderr)


def test_a_forked_program_sees_only_the_given_environment(tmp_path: Path) -> None:
    output = tmp_path / "output"
    program = ForkedProgram("controller", ["run"], output, environment={"VMHERD_WORKERS": "none"})
    assert program.wait(30) == 2
    assert "VMHERD_WORKERS" in output.read_text()


def test_a_signal_ends_a_forked_program_and_is_its_exit_code(tmp_path: Path) -> None:
    program = ForkedProgram("http.server", ["--bind", "127.0.0.1", "0"], tmp_path / "output")
    with pytest.raises(subprocess.TimeoutExpired):
        program.wait(0.01)
    assert program.poll() is None
    program.terminate()
    assert program.wait(30) == program.returncode == -signal.SIGTERM
    program.kill()
