"""Facts of the project and of the commit, the conditions for a release, and the call of its tools."""

import os
import re
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tools.release import changelog

WITHIN_S = 900


class Failed(Exception):
    """A tool failed. `str()` has its last lines."""


def run(*command: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """Run a command and return its output. Raises Failed."""
    words = [str(word) for word in command]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **variables}
    try:
        done = subprocess.run(
            words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{words[0]}: {error}") from error
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
        raise Failed(f"{' '.join(words[:4])} ...: exit {done.returncode}\n{last}")
    return done.stdout


ROOT = Path(__file__).resolve().parent.parent.parent
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")


CONTACT = "SECURITY_CONTACT"
"""The placeholder in SECURITY.md. The owner of the project replaces it before the first release."""


class Refused(Exception):
    """A release is not possible. `str()` says why, in one line."""


@dataclass(frozen=True)
class Project:
    """The project as `pyproject.toml` describes it."""

    name: str
    version: str
    description: str
    home: str
    license: str
    maintainer: str
    artifact_hub_repository: str
    """The ID that Artifact Hub gave to the repository of the chart, or ""."""

    email: str = ""
    """The address of the first author, or ""."""

    def download(self, file: str) -> str:
        """Return the address of a file of this release."""
        return f"{self.home}/releases/download/v{self.version}/{file}"


@dataclass(frozen=True)
class Commit:
    id: str
    time: int
    """Seconds since 1970. All timestamps in the release have this value."""

    notes: str
    """The section of CHANGELOG.md for the release."""


def read_project(root: Path) -> Project:
    content = tomllib.loads((root / "pyproject.toml").read_text())
    facts = content["project"]
    return Project(
        name=facts["name"],
        version=facts["version"],
        description=facts["description"],
        home=facts["urls"]["Homepage"],
        license=facts["license"],
        maintainer=facts["authors"][0]["name"],
        email=facts["authors"][0].get("email", ""),
        artifact_hub_repository=content["tool"]["vmherd"]["artifact-hub-repository"],
    )


def check(root: Path, version: str, *, rehearsal: bool = False, rebuild: bool = False) -> Commit:
    """Return the commit to release. Raises Refused if a condition is not met.

    A rehearsal may use the section `Unreleased` of CHANGELOG.md, and its tag may exist. For a rebuild, the tag must
    exist and name the current commit.
    """
    if not VERSION.fullmatch(version):
        raise Refused(f"the version must have the form X.Y.Z, for example 0.1.0: {version!r}")
    if (stated := read_project(root).version) != version:
        raise Refused(f"pyproject.toml has the version {stated}, not {version}; see docs/releasing.md")
    if dirty := git(root, "status", "--porcelain"):
        raise Refused(f"the working tree has changes that are not committed, for example {dirty.split()[1]}")
    if rebuild and _commit_of_tag(root, version) != git(root, "rev-parse", "HEAD"):
        raise Refused(f"the tag v{version} does not name the current commit")
    if not rebuild and not rehearsal and _commit_of_tag(root, version):
        raise Refused(f"the tag v{version} exists already; --rebuild makes its files again")
    if not rehearsal and CONTACT in (root / "SECURITY.md").read_text():
        raise Refused(f"SECURITY.md has no contact for reports: replace the word {CONTACT}")
    text = (root / "CHANGELOG.md").read_text()
    notes = changelog.section(text, version) or (changelog.section(text, "Unreleased") if rehearsal else None)
    if not notes:
        raise Refused(f"CHANGELOG.md has no section '## [{version}]'")
    commit, time = git(root, "log", "-1", "--format=%H %ct").split()
    return Commit(commit, int(time), notes)


def _commit_of_tag(root: Path, version: str) -> str:
    """Return the commit that the tag of the version names, or "" if there is no tag."""
    return git(root, "tag", "--list", f"v{version}") and git(root, "rev-parse", f"v{version}^{{commit}}")


def tag(root: Path, version: str) -> None:
    """Make an annotated tag in the local repository."""
    git(root, "tag", "--annotate", f"v{version}", "--message", f"Version {version}")


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"git {arguments[0]}: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout.strip()
