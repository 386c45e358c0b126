"""The command as a shell sees it: what it prints where, and its exit code."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from controller.cli import COMMANDS, main
from controller.config.settings import Config
from controller.preflight.permissions import permissions_needed

ROOT = Path(__file__).resolve().parents[2]

BARE_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("VMHERD_", "KUBE"))}


def vmherd(*arguments: str, code: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, with no terminal; `code` runs before it."""
    program = ["-c", f"import sys\n{code}\nfrom controller.cli import main\nsys.exit(main())"]
    return subprocess.run(
        [sys.executable, *program, *arguments],
        cwd=ROOT,
        env={**BARE_ENVIRONMENT, "HOME": "/nonexistent", **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("argument", ["--help", "-h", "help"])
def test_help_goes_to_stdout_and_names_every_command(argument, capsys):
    assert main([argument]) == 0
    out, err = capsys.readouterr()
    assert all(f"\n  {name} " in out for name in COMMANDS)
    assert err == ""


def test_no_command_prints_help_to_stderr_and_is_misuse(capsys):
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("usage: vmherd COMMAND")


@pytest.mark.parametrize("argument", ["--version", "version"])
def test_version_is_one_line(argument, capsys):
    assert main([argument]) == 0
    out, _ = capsys.readouterr()
    assert out.startswith("vmherd ")
    assert out.count("\n") == 1


def test_help_of_run_explains_its_flags(capsys):
    assert main(["run", "--help"]) == 0
    assert "--max-inflight N" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["rnu"], "rnu: no such command; did you mean run?"),
        (
            ["frobnicate"],
            "frobnicate: no such command; there are run, takeover, cleanup, expose, demo, sandbox, version",
        ),
        (["version", "2"], "version: expected nothing after it, not 2"),
        (["run", "--workers", "0"], "--workers 0: expected a whole number from 1 to 1000"),
        (["run", "--wrokers", "1"], "--wrokers: no such flag; did you mean --workers?"),
        (["takeover", "--udno"], "--udno: no such flag; did you mean --undo?"),
        (["cleanup", "now"], "now: expected flags alone; 'vmherd cleanup --help' lists them"),
        (["cleanup", "--mode", "beside"], "--mode beside: expected one of auto, standalone, takeover, alongside"),
    ],
)
def test_a_wrong_call_is_one_line_on_stderr_and_exit_code_2(arguments, line, capsys):
    assert main(arguments) == 2
    assert capsys.readouterr() == ("", f"vmherd: {line}\n")


def test_a_wrong_variable_is_one_line_on_stderr_and_exit_code_2():
    done = vmherd("run", VMHERD_WORKERS="0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "vmherd: VMHERD_WORKERS=0: expected a whole number from 1 to 1000\n"


@pytest.mark.parametrize("command", ["run", "takeover", "cleanup", "expose vmirs web --name web"])
def test_a_missing_kubeconfig_is_one_line_and_exit_code_1(command):
    done = vmherd(*command.split(), "--kubeconfig", "/no/such/file")
    assert done.returncode == 1
    assert done.stderr.startswith("vmherd: no kubeconfig at /no/such/file")
    assert done.stderr.count("\n") == 1


def test_an_unknown_variable_is_told_and_ignored():
    done = vmherd("run", "--kubeconfig", "/no/such/file", VMHERD_WORKER="3")
    assert done.stderr.startswith("vmherd: VMHERD_WORKER: no such variable, ignored; did you mean VMHERD_WORKERS?\n")
    assert done.returncode == 1


def test_a_broken_kubeconfig_is_one_line_and_exit_code_1(tmp_path):
    broken = tmp_path / "kubeconfig"
    broken.write_text("clusters: [}")
    done = vmherd("run", "--kubeconfig", str(broken))
    assert done.returncode == 1
    assert str(broken) in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_unknown_context_is_named_with_exit_code_1(tmp_path):
    config = tmp_path / "kubeconfig"
    config.write_text(
        "current-context: a\n"
        "contexts: [{name: a, context: {cluster: a, user: a}}]\n"
        "clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "users: [{name: a, user: {token: x}}]\n"
    )
    done = vmherd("run", "--kubeconfig", str(config), "--context", "b")
    assert done.returncode == 1
    assert "b" in done.stderr
    assert done.stderr.count("\n") == 1


ANY_PORT = ("--metrics-bind-address", "127.0.0.1:0", "--health-probe-bind-address", "127.0.0.1:0")


@pytest.mark.cluster
def test_a_wrong_token_is_one_line_and_exit_code_1(control_plane, tmp_path):
    kubeconfig = control_plane.write_kubeconfig(tmp_path / "kubeconfig", "nobody", token="wrong")
    done = vmherd("run", "--kubeconfig", str(kubeconfig), *ANY_PORT)
    assert done.returncode == 1
    assert done.stderr.startswith("vmherd: the API server does not accept our credentials")
    assert done.stderr.count("\n") == 1


@pytest.mark.cluster
def test_missing_permissions_are_a_line_for_each_resource_and_exit_code_1(control_plane, tmp_path):
    kubeconfig = control_plane.write_kubeconfig(tmp_path / "kubeconfig", "nobody")
    done = vmherd("run", "--kubeconfig", str(kubeconfig), "--no-leader-elect", *ANY_PORT)
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert len(lines) == len({p.subject for p in permissions_needed(Config(leader_elect=False))}) > 5
    assert all(line.startswith("vmherd: missing permission: ") for line in lines)


@pytest.mark.cluster
def test_a_missing_kind_is_one_line_that_says_what_installs_it_and_exit_code_1(control_plane):
    done = vmherd("run", "--kubeconfig", str(control_plane.kubeconfig), "--replicaset-group", "nobody.dev", *ANY_PORT)
    assert done.returncode == 1
    assert "has no virtualmachineinstancereplicasets.nobody.dev in version v1: kubectl apply -f " in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_does_not_load_what_only_run_needs():
    done = vmherd("run", "--help", code="import atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr))")
    loaded = set(done.stderr.split())
    assert {"controller.config.settings", "argparse"} <= loaded
    assert not loaded & {"kubernetes_asyncio", "aiohttp", "controller.app", "sandbox", "rich", "yaml"}


@pytest.mark.parametrize("command", ["demo", "sandbox"])
def test_without_the_sandbox_its_commands_say_so_in_one_line(command):
    done = vmherd(command, code="sys.modules['sandbox'] = None")
    assert done.returncode == 1
    assert done.stderr.startswith(f"vmherd: {command} needs sandbox")
    assert done.stderr.count("\n") == 1


def test_ctrl_c_is_no_traceback(monkeypatch, capsys):
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setitem(COMMANDS, "version", COMMANDS["version"]._replace(run=interrupted))
    assert main(["version"]) == 130
    assert capsys.readouterr() == ("", "")


def test_python_m_controller_is_the_same_command():
    done = subprocess.run(
        [sys.executable, "-m", "controller", "version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("vmherd ")


def test_the_project_names_this_entry_point():
    assert importlib.util.find_spec("controller.__main__") is not None
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"vmherd": "controller.__main__:main", "kubectl-vmherd": "controller.__main__:main"}
