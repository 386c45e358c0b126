"""`make audit` never reports success if nothing was checked."""

import re
from pathlib import Path

import pytest

from tests.programs import finished

ROOT = Path(__file__).resolve().parent.parent

CLEAN, VULNERABLE = "exit 0", "echo 'a 1.0: CVE-1'; exit 1"
OLDER = "echo 'Inst bash [5.2-1] (5.2-2 Debian:13.8/stable [amd64])'"
UNSAFE = "echo 'Inst liblzma5 [5.8-1] (5.8-2 Debian:13.8/stable, Debian-Security:13/stable-security [amd64])'"
KNOWS = 'case "$*" in *vulnerable.txt) exit 1;; esac'


@pytest.mark.parametrize(
    ("pip_audit", "docker", "passes", "text"),
    [
        (f"{KNOWS}; {CLEAN}", OLDER, True, ""),
        (f"{KNOWS}; {VULNERABLE}", CLEAN, False, "CVE-1"),
        (f'{KNOWS}; case "$*" in *-dev.txt) {VULNERABLE};; esac', CLEAN, False, "CVE-1"),
        (CLEAN, CLEAN, False, "the database knows no vulnerabilities"),
        ("echo 'no answer' >&2; exit 1", CLEAN, False, "no answer"),
        (f"{KNOWS}; {CLEAN}", UNSAFE, False, "Inst liblzma5"),
        (f"{KNOWS}; {CLEAN}", "exit 125", False, "the Debian packages of the base image were not checked"),
    ],
)
def test_the_audit_passes_only_if_each_package_has_a_clean_answer(
    tmp_path: Path, pip_audit: str, docker: str, passes: bool, text: str
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, script in (("pip-audit", pip_audit), ("docker", docker)):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    (tmp_path / ".installed").touch()
    command = ["make", "audit", f"AUDIT={tmp_path}", f"CONTAINER={programs / 'docker'}"]
    done = finished(command, cwd=ROOT)
    assert (done.returncode == 0) is passes
    assert text in done.stdout + done.stderr


def test_every_file_with_pins_is_audited_and_ci_runs_the_audit() -> None:
    pinned = {path.stem.removeprefix("requirements-") for path in (ROOT / ".ci").glob("requirements-*.txt")}
    [audited] = re.findall(r"^AUDITED := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert pinned - set(audited.split()) == {"checkov"}, "it is not part of the product"
    assert "make audit" in (ROOT / ".github" / "workflows" / "ci.yml").read_text()
