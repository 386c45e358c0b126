"""The command line of the programs that generate files."""

from pathlib import Path

import pytest

from tools.generated import main


def test_an_outdated_file_is_named_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, other = tmp_path / "docs" / "page.md", tmp_path / "other.md"
    other.write_text("same\n")

    def run(*arguments: str) -> tuple[int, str]:
        code = main(arguments, lambda: {page: "new\n", other: "same\n"}, "make pages", root=tmp_path)
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    assert run("--check") == (1, "docs/page.md is out of date: run `make pages`\n")
    assert not page.exists()
    assert run() == (0, "wrote docs/page.md\n")
    assert page.read_text() == "new\n"
    assert run() == run("--check") == (0, "")
    assert run("--chekc") == (2, "make pages: expected --check or no argument, got --chekc\n")


def test_a_failure_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> dict[Path, str]:
        raise RuntimeError("not finished within 60s")

    assert main([], fails, "make pages", (RuntimeError,), root=tmp_path) == 1
    assert capsys.readouterr().err == "make pages: not finished within 60s\n"
