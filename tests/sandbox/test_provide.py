"""Several processes share one cache of programs: `sandbox.provide`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.provide import provide

PROCESSES = 4
MAKER = """
import sys, time
from pathlib import Path
from sandbox.provide import provide

def make(path):
    with open(sys.argv[2], "a") as log:
        log.write("made\\n")
    path.write_text("#!/bin/sh\\n")
    time.sleep(0.5)
    path.write_text("#!/bin/sh\\necho complete\\n")

print(provide(Path(sys.argv[1]), make))
"""


def told(code: str, *arguments: Path, **environment: str) -> tuple[set[str], str]:
    """The different outputs of several processes that run this code at once, and all their errors. No process fails."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            env={**os.environ, **environment, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(PROCESSES)
    ]
    ended = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0] * PROCESSES, ended
    return {output.strip() for output, _ in ended}, "".join(errors for _, errors in ended)


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if path.suffix != ".lock"}


def test_of_several_processes_one_makes_the_program_and_all_get_it(tmp_path: Path) -> None:
    tool, log = tmp_path / "tools" / "tool", tmp_path / "log"
    outputs, errors = told(MAKER, tool, log)
    assert outputs == {str(tool)}
    assert "waiting for another process" in errors
    assert log.read_text() == "made\n"
    assert subprocess.run([tool], capture_output=True, text=True, check=True).stdout == "complete\n"
    assert names_in(tool.parent) == {"tool"}


def test_a_maker_that_fails_leaves_nothing_and_the_next_one_is_not_disturbed(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        path.write_text("a half")
        raise OSError("interrupted")

    tool = tmp_path / "tool"
    with pytest.raises(OSError, match="interrupted"):
        provide(tool, fail)
    assert names_in(tmp_path) == set()
    left_behind = tmp_path / ".incomplete-tool"  # of a process that was killed
    left_behind.mkdir()
    (left_behind / "tool").mkdir()
    provide(tool, lambda path: path.touch())
    assert names_in(tmp_path) == {"tool"}


def test_a_folder_without_its_program_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "environment"
    (folder / "lib").mkdir(parents=True)

    def make(path: Path) -> None:
        path.mkdir()
        (path / "python").touch(0o755)

    assert provide(folder, make, program="python") == folder / "python"
    assert names_in(folder) == {"python"}
