"""Facts of the project and of the commit, the conditions for a release, and the call of its tools."""

import os
import re
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

WITHIN_S = 900


class Failed(Exception):
    """A tool failed. `str()` has its last lines."""


def run(*command: str | Path, **variables: str) -> str:
    """Run a command and return its output. Raises Failed."""
    words = [str(word) for word in command]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **variables}
    try:
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{words[0]}: {error}") from error
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
        raise Failed(f"{' '.join(words[:4])} ...: exit {done.returncode}\n{last}")
    return done.stdout


ROOT = Path(__file__).resolve().parent.parent.parent
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")


PLACEHOLDERS = {
    "SECURITY.md": ("a contact for reports", "SECURITY_CONTACT"),
    "MAINTAINERS.md": ("a maintainer", "MAINTAINER_NAME"),
    "ROADMAP.md": ("an owner", "ROADMAP_OWNER"),
}
"""What each file lacks while it has its placeholder. The owner replaces them before the first release."""


class Refused(Exception):
    """A release is not possible. `str()` says why, in one line."""


@dataclass(frozen=True)
class Project:
    name: str
    version: str
    description: str
    home: str
    license: str
    maintainer: str
    email: str = ""

    def download(self, file: str) -> str:
        return f"{self.home}/releases/download/v{self.version}/{file}"


@dataclass(frozen=True)
class Commit:
    id: str
    time: int
    """Seconds since 1970. All timestamps in the release have this value."""

    notes: str


def read_project(root: Path) -> Project:
    facts = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    return Project(
        name=facts["name"],
        version=facts["version"],
        description=facts["description"],
        home=facts["urls"]["Homepage"],
        license=facts["license"],
        maintainer=facts["authors"][0]["name"],
        email=facts["authors"][0].get("email", ""),
    )


def check(root: Path, version: str, *, rehearsal: bool = False) -> Commit:
    """Return the commit to release. Raises Refused if a condition is not met.

    The tag of the version may exist if it names the current commit: then the files are made again. A rehearsal may use
    the section `Unreleased` of CHANGELOG.md, and the tag may name another commit.
    """
    if not VERSION.fullmatch(version):
        raise Refused(f"the version must have the form X.Y.Z, for example 0.1.0: {version!r}")
    if (stated := read_project(root).version) != version:
        raise Refused(f"pyproject.toml has the version {stated}, not {version}; see docs/releasing.md")
    if dirty := git(root, "status", "--porcelain"):
        raise Refused(f"the working tree has changes that are not committed, for example {dirty.split()[1]}")
    commit, time = git(root, "log", "-1", "--format=%H %ct").split()
    tagged = git(root, "tag", "--list", f"v{version}") and git(root, "rev-parse", f"v{version}^{{commit}}")
    if not rehearsal and tagged not in ("", commit):
        raise Refused(f"the tag v{version} names another commit")
    for name, (missing, word) in PLACEHOLDERS.items():
        if not rehearsal and word in (root / name).read_text():
            raise Refused(f"{name} does not name {missing}: replace the word {word}")
    text = (root / "CHANGELOG.md").read_text()
    notes = section(text, version) or (section(text, "Unreleased") if rehearsal else None)
    if not notes:
        raise Refused(f"CHANGELOG.md has no section '## [{version}]'")
    return Commit(commit, int(time), notes)


def section(text: str, version: str) -> str | None:
    """Return the content of a section of CHANGELOG.md, or None if there is no such section or it is empty."""
    start = re.search(rf"^## \[{re.escape(version)}\].*$", text, re.MULTILINE)
    if start is None:
        return None
    return re.split(r"^(?:## |\[[^\]]+\]: )", text[start.end() :], maxsplit=1, flags=re.MULTILINE)[0].strip() or None


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"git {arguments[0]}: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout.strip()
