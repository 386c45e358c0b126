"""The program of the plugin's archive: how it starts with each Python."""

import os
import shutil
import subprocess
import sys
from importlib import machinery
from pathlib import Path

from tests.programs import finished
from tools.release import plugin
from tools.release.project import ROOT

MODULE = "import sys\ndef main():\n    print({name!r}, *sys.argv[1:])\n    return 3\n"


def a_program(directory: Path, *, suffix: str = machinery.EXTENSION_SUFFIXES[0]) -> Path:
    """The real program with another plugin beside it."""
    files = {
        f"msgspec/_core{suffix}": "",
        "plugin/__init__.py": "",
        "plugin/__main__.py": MODULE.format(name="plugin"),
        "plugin/completion.py": MODULE.format(name="completion"),
    }
    for name, text in files.items():
        path = directory / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Path(shutil.copy(ROOT / "tools" / "release" / "launcher.py", directory / plugin.NAME))


def run(*command: str | Path, path: str = "/usr/bin:/bin") -> subprocess.CompletedProcess[str]:
    return finished(command, env={"PATH": path, "PYTHONDONTWRITEBYTECODE": "1"})


def test_the_plugin_runs_also_through_a_link_and_its_exit_code_is_kept(tmp_path: Path) -> None:
    """krew puts a link to the program on the PATH."""
    program, link = a_program(tmp_path), tmp_path / "bin" / "kubectl-vmherd"
    link.parent.mkdir()
    link.symlink_to(program)
    for started in (program, link):
        done = run(sys.executable, started, "list", "-A")
        assert (done.returncode, done.stdout, done.stderr) == (3, "plugin list -A\n", "")


def test_the_name_of_the_completion_starts_the_completion(tmp_path: Path) -> None:
    link = tmp_path / "kubectl_complete-vmherd"
    link.symlink_to(a_program(tmp_path))
    assert run(sys.executable, link, "a").stdout == "completion a\n"


def test_a_python_without_extension_module_says_what_is_needed(tmp_path: Path) -> None:
    program = a_program(tmp_path, suffix=".cpython-399-other.so")
    done = run(sys.executable, program, "list", path=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("error: kubectl-vmherd needs CPython 3.11 to 3.14 on Linux")


def test_a_fitting_python_of_the_path_takes_over_and_a_broken_one_is_passed_over(tmp_path: Path) -> None:
    """The name python3.14 exists but does not start, as with a shim of a version manager."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("python3.14", "exit 127"), ("python3.13", 'test "$1" = -c || echo "taken by 3.13 $2"')):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    program = a_program(tmp_path, suffix=".cpython-399-other.so")
    done = run(sys.executable, program, "list", path=f"{programs}{os.pathsep}/bin")
    assert (done.returncode, done.stdout) == (0, "taken by 3.13 list\n")
