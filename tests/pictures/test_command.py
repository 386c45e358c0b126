"""`python -m tools.pictures` as a command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rich.text import Text

from sandbox.demo.cluster import DemoFailed
from tools.pictures import __main__ as command
from tools.pictures.run import Shots

NAMES = {"demo.svg", "tree.svg", "why.svg"}
ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(command, "IMAGES", tmp_path / "images")
    shots = Shots(demo=Text("demo"), tree=Text("tree"), why=Text("why"))
    monkeypatch.setattr(command, "take", lambda: shots)
    return tmp_path / "images"


def test_the_command_writes_all_pictures_and_then_only_those_that_changed(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([]) == 0
    assert {path.name for path in images.iterdir()} == NAMES
    capsys.readouterr()
    (images / "why.svg").write_text("old")
    assert command.main([]) == 0
    assert capsys.readouterr().out == "wrote docs/images/why.svg\n"


def test_check_names_outdated_pictures_and_writes_nothing(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command.main([])
    assert command.main(["--check"]) == 0
    (images / "tree.svg").unlink()
    capsys.readouterr()
    assert command.main(["--check"]) == 1
    assert capsys.readouterr().err == "docs/images/tree.svg is out of date: run `make pictures`\n"
    assert not (images / "tree.svg").exists()


def test_a_wrong_argument_is_named(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--chekc"]) == 2
    assert capsys.readouterr().err == "pictures: expected --check or no argument, got --chekc\n"


def test_a_failure_of_the_run_is_one_line(
    images: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> Shots:
        raise DemoFailed("not finished within 60s: update")

    monkeypatch.setattr(command, "take", fails)
    assert command.main([]) == 1
    assert capsys.readouterr().err == "pictures: not finished within 60s: update\n"
    assert not images.exists()


def test_the_readme_shows_all_pictures() -> None:
    readme = (ROOT / "README.md").read_text()
    assert {name for name in NAMES if f"(docs/images/{name})" in readme} == NAMES


@pytest.mark.cluster
@pytest.mark.e2e
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("control_plane_binaries")
def test_the_committed_pictures_are_those_of_a_run() -> None:
    check = [sys.executable, "-m", "tools.pictures", "--check"]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
