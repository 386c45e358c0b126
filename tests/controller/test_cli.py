"""The command as a shell sees it: output, exit codes, completion, and the modules it imports."""

import importlib.util
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from controller.cli import main, vmherd
from controller.config.settings import Config
from controller.preflight.permissions import permissions_needed
from tests.programs import finished

COMMANDS = ("run", "takeover", "cleanup", "conformance", "demo", "sandbox", "version")

ROOT = Path(__file__).resolve().parents[2]

BARE_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("VMHERD_", "KUBE"))}


def shell(*arguments: str, code: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a separate process without a terminal. `code` runs before the command."""
    program = ["-c", f"import sys\n{code}\nfrom controller.cli import main\nsys.exit(main())"]
    return finished(
        [sys.executable, *program, *arguments],
        cwd=ROOT,
        env={**BARE_ENVIRONMENT, "HOME": "/nonexistent", **env},
        stdin=subprocess.DEVNULL,
    )


def failure(*arguments: str, **more: str) -> str:
    """The only line on stderr of a call that fails with exit code 1."""
    done = shell(*arguments, **more)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize("argument", ["--help", "-h", "help"])
def test_help_goes_to_stdout_and_names_every_command(argument, capsys):
    assert main([argument]) == 0
    out, err = capsys.readouterr()
    listed = [line.split()[0] for line in out.partition("\nCommands:\n")[2].splitlines()]
    assert listed == list(COMMANDS)
    assert err == ""


def test_a_call_without_a_command_prints_help_to_stderr_and_fails(capsys):
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Usage: vmherd [OPTIONS] COMMAND")


@pytest.mark.parametrize("argument", ["--version", "version"])
def test_version_is_one_line(argument, capsys):
    assert main([argument]) == 0
    out, _ = capsys.readouterr()
    assert out.startswith("vmherd ")
    assert out.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["rnu"], "No such command 'rnu'. Did you mean 'run'?"),
        (["frobnicate"], "No such command 'frobnicate'; try 'vmherd --help'"),
        (["version", "2"], "Got unexpected extra argument (2); try 'vmherd version --help'"),
        (["run", "--workers", "0"], "--workers: 0 is not in the range 1<=x<=1000"),
        (["run", "--wrokers", "1"], "No such option '--wrokers'. Did you mean '--workers'?"),
        (["takeover", "--udno"], "No such option '--udno'. Did you mean '--undo'?"),
        (["cleanup", "now"], "Got unexpected extra argument (now); try 'vmherd cleanup --help'"),
        (
            ["cleanup", "--mode", "beside"],
            "--mode: 'beside' is invalid; expected one of auto, standalone, takeover, alongside",
        ),
        (["sandbox", "up"], "Missing option '--dir'; try 'vmherd sandbox up --help'"),
        (
            ["sandbox", "up", "--dir", "d", "--dteach"],
            "No such option '--dteach'. (Did you mean one of: '--detach', '--detail'?)",
        ),
        (["sandbox", "sideways"], "No such command 'sideways'; try 'vmherd sandbox --help'"),
        (["demo", "--onec"], "No such option '--onec'. Did you mean '--once'?"),
    ],
)
def test_a_wrong_call_is_one_line_on_stderr_and_exit_code_2(arguments, line, capsys):
    assert main(arguments) == 2
    assert capsys.readouterr() == ("", f"vmherd: {line}\n")


KUBECONFIG = """
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]
users: [{name: a, user: {token: x}}]
"""


@pytest.mark.parametrize(
    ("command", "content", "said"),
    [
        ("run", None, "vmherd: no kubeconfig at {}"),
        ("takeover", None, "vmherd: no kubeconfig at {}"),
        ("cleanup", None, "vmherd: no kubeconfig at {}"),
        ("conformance", None, "vmherd: no kubeconfig at {}"),
        ("run", "clusters: [}", "{}"),
        ("run --context missing", KUBECONFIG, "missing"),
    ],
)
def test_an_unusable_kubeconfig_is_one_line_and_exit_code_1(command, content, said, tmp_path):
    file = tmp_path / "kubeconfig"
    if content is not None:
        file.write_text(content)
    assert said.format(file) in failure(*command.split(), "--kubeconfig", str(file))


def test_the_controller_may_open_as_many_files_as_the_hard_limit_allows():
    code = """
import atexit, resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
atexit.register(lambda: print(resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard))
"""
    assert shell("run", "--kubeconfig", "absent", code=code).stdout == "True\n"


def test_an_unknown_variable_is_reported_and_ignored():
    done = shell("run", "--kubeconfig", "/no/such/file", VMHERD_WORKER="3")
    assert done.stderr.startswith("vmherd: VMHERD_WORKER: no such variable, ignored; did you mean VMHERD_WORKERS?\n")
    assert done.returncode == 1


ANY_PORT = ("--metrics-bind-address", "127.0.0.1:0", "--health-probe-bind-address", "127.0.0.1:0")


@pytest.mark.cluster
def test_a_wrong_token_is_one_line_and_exit_code_1(control_plane, tmp_path):
    kubeconfig = control_plane.write_kubeconfig(tmp_path / "kubeconfig", "stranger", token="wrong")
    line = failure("run", "--kubeconfig", str(kubeconfig), *ANY_PORT)
    assert line.startswith("vmherd: the API server does not accept the credentials")


@pytest.mark.cluster
def test_missing_permissions_are_a_line_for_each_resource_and_exit_code_1(control_plane, tmp_path):
    kubeconfig = control_plane.write_kubeconfig(tmp_path / "kubeconfig", "stranger")
    done = shell("run", "--kubeconfig", str(kubeconfig), "--no-leader-elect", *ANY_PORT)
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert len(lines) == len({p.subject for p in permissions_needed(Config(leader_elect=False))}) > 5
    assert all(line.startswith("vmherd: missing permission: ") for line in lines)


@pytest.mark.cluster
def test_a_missing_kind_is_one_line_that_says_what_installs_it_and_exit_code_1(control_plane):
    options = ["--kubeconfig", str(control_plane.kubeconfig), "--leader-election-namespace", "default", *ANY_PORT]
    line = failure("run", "--replicaset-group", "absent.dev", *options)
    assert "has no virtualmachineinstancereplicasets.absent.dev in version v1: run 'kubectl apply -f " in line


SLOW = {"asyncio", "kubernetes_asyncio", "aiohttp", "controller.app", "sandbox", "rich", "yaml"}
PRINT_MODULES = "import atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr))"


@pytest.mark.parametrize(
    ("arguments", "imported"),
    [(["--help"], False), (["run", "--help"], True), (["run", "--workers=0"], True), (["rnu"], False)],
)
def test_help_and_a_wrong_flag_need_no_slow_import(arguments, imported):
    done = shell(*arguments, code=PRINT_MODULES)
    loaded = set(done.stderr.split())
    assert ("controller.config.settings" in loaded) == imported
    assert not loaded & SLOW


def completions(*words: str, code: str = "") -> list[str]:
    """What bash's completion offers for the last word of the command line `vmherd <words>`."""
    line = {"COMP_WORDS": f"vmherd {' '.join(words)}", "COMP_CWORD": str(len(words))}
    done = shell(code=code, _VMHERD_COMPLETE="bash_complete", **line)
    assert done.returncode == 0, done.stderr
    assert not set(done.stderr.split()) & SLOW
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["ru"], ["run"]),
        ([""], list(COMMANDS)),
        (["run", "--no-lead"], ["--no-leader-elect"]),
        (["run", "--mode", "a"], ["auto", "alongside"]),
        (["run", "--workers", "3", "--log-l"], ["--log-level"]),
    ],
)
def test_the_shell_completes_commands_flags_and_values(words, offered):
    assert completions(*words, code=PRINT_MODULES) == offered


def test_the_shell_completes_the_commands_of_the_sandbox():
    assert completions("sandbox", "u") == ["up"]


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_there_is_a_completion_script_for_each_shell(shell_name):
    done = shell(_VMHERD_COMPLETE=f"{shell_name}_source", PATH=os.environ["PATH"])
    assert done.returncode == 0
    assert "_VMHERD_COMPLETE" in done.stdout


@pytest.mark.parametrize("command", ["demo", "sandbox"])
def test_without_the_sandbox_its_commands_say_so_in_one_line(command):
    assert failure(command, code="sys.modules['sandbox'] = None").startswith(f"vmherd: {command} needs sandbox")


def test_ctrl_c_prints_no_traceback(monkeypatch, capsys):
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(vmherd.commands["version"], "callback", interrupted)
    assert main(["version"]) == 130
    assert capsys.readouterr() == ("", "\n")


def test_python_m_controller_is_the_same_command():
    done = finished([sys.executable, "-m", "controller", "version"], cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("vmherd ")


def test_the_project_names_this_entry_point():
    assert importlib.util.find_spec("controller.__main__") is not None
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {
        "vmherd": "controller.__main__:main",
        "kubectl-vmherd": "plugin.__main__:main",
        "kubectl_complete-vmherd": "plugin.completion:main",
    }
