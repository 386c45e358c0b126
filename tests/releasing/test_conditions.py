"""A release begins only if its conditions are met. Each refusal is one line that names the condition."""

import re
import subprocess
from pathlib import Path

import pytest

from tools.release.__main__ import main
from tools.release.project import PLACEHOLDERS, ROOT, Project, Refused, check, read_project

PYPROJECT = (ROOT / "pyproject.toml").read_text()
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n- Later\n\n## [{version}] - 2026-11-22\n\n### Added\n\n- **A thing**\n"


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True)


@pytest.fixture
def version() -> str:
    return read_project(ROOT).version


@pytest.fixture
def root(tmp_path: Path, version: str) -> Path:
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG.format(version=version))
    for name in PLACEHOLDERS:
        (tmp_path / name).write_text("Report to security@example.com.\n")
    git(tmp_path, "init", "--initial-branch", "main")
    git(tmp_path, "config", "user.name", "A test")
    git(tmp_path, "config", "user.email", "test@example.com")
    commit(tmp_path)
    return tmp_path


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--message", "A change", "--date", "2026-11-22T10:00:00Z")


def test_a_clean_commit_with_a_section_in_the_changelog_is_released(root: Path, version: str) -> None:
    found = check(root, version)
    assert (len(found.id), found.notes) == (40, "### Added\n\n- **A thing**")


@pytest.mark.parametrize("wrong", ["", "1", "1.2", "v1.2.3", "1.2.3-rc.1", "01.2.3", "1.2.3\n", "1.2.x"])
def test_a_version_that_is_not_three_numbers_is_refused(root: Path, wrong: str) -> None:
    with pytest.raises(Refused, match=r"^the version must have the form X\.Y\.Z"):
        check(root, wrong)


def test_a_version_that_is_not_in_pyproject_is_refused(root: Path, version: str) -> None:
    with pytest.raises(Refused, match=rf"^pyproject\.toml has the version {version}, not 9\.9\.9"):
        check(root, "9.9.9")


@pytest.mark.parametrize("name", PLACEHOLDERS)
def test_a_release_without_people_is_refused(root: Path, version: str, name: str) -> None:
    (root / name).write_text((ROOT / name).read_text())
    commit(root)
    assert check(root, version, rehearsal=True)
    with pytest.raises(Refused, match=rf"^{re.escape(name)} does not name an? [\w ]+: replace the word [A-Z]+_[A-Z]+$"):
        check(root, version)


@pytest.mark.parametrize("name", ["new.txt", "CHANGELOG.md"])
def test_a_tree_with_changes_is_refused(root: Path, version: str, name: str) -> None:
    (root / name).write_text("changed")
    with pytest.raises(Refused, match=rf"^the working tree has changes that are not committed, for example {name}$"):
        check(root, version)


def test_a_tag_of_the_current_commit_is_made_again_and_a_tag_of_another_is_refused(root: Path, version: str) -> None:
    git(root, "tag", "--annotate", f"v{version}", "--message", "A version")
    assert check(root, version) == check(root, version, rehearsal=True)
    (root / "new.txt").write_text("new")
    commit(root)
    with pytest.raises(Refused, match=rf"^the tag v{version} names another commit$"):
        check(root, version)
    assert check(root, version, rehearsal=True).notes


def test_a_changelog_without_a_section_is_refused(root: Path, version: str) -> None:
    (root / "CHANGELOG.md").write_text(CHANGELOG.format(version="0.0.1"))
    commit(root)
    with pytest.raises(Refused, match=rf"^CHANGELOG\.md has no section '## \[{version}\]'$"):
        check(root, version)
    assert check(root, version, rehearsal=True).notes == "- Later"


def test_a_refusal_is_one_line_and_nothing_is_written(
    root: Path, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "new.txt").write_text("changed")
    assert main([version, "--root", str(root), "--tools", "/nowhere"]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith("release: the working tree has changes")
    assert not (root / "dist").exists()


def test_the_addresses_for_security_are_below_the_address_of_the_project() -> None:
    links = re.findall(r"https://\S+", (ROOT / "SECURITY-INSIGHTS.yml").read_text())
    home = read_project(ROOT).home
    assert len(links) > 5
    assert [link for link in links if not (link == home or link.startswith(f"{home}/blob/main/"))] == []
    files = [ROOT / link.removeprefix(f"{home}/blob/main/") for link in links if link != home]
    assert [file for file in files if not file.is_file()] == []


def test_the_files_of_a_release_are_below_the_address_of_the_project() -> None:
    project = Project("p", "1.2.3", "", "https://example.com/p", "", "")
    assert project.download("a.tgz") == "https://example.com/p/releases/download/v1.2.3/a.tgz"
