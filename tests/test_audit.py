"""`make audit` never reports success if nothing was checked."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

CLEAN, VULNERABLE = "exit 0", "echo 'a 1.0: CVE-1'; exit 1"
KNOWS = 'case "$*" in *vulnerable.txt) exit 1;; esac'


@pytest.mark.parametrize(
    ("pip_audit", "passes", "text"),
    [
        (f"{KNOWS}; {CLEAN}", True, ""),
        (f"{KNOWS}; {VULNERABLE}", False, "CVE-1"),
        (f'{KNOWS}; case "$*" in *-dev.txt) {VULNERABLE};; esac', False, "CVE-1"),
        (CLEAN, False, "the database knows no vulnerabilities"),
        ("echo 'no answer' >&2; exit 1", False, "no answer"),
    ],
)
def test_the_audit_passes_only_if_each_package_has_a_clean_answer(
    tmp_path: Path, pip_audit: str, passes: bool, text: str
) -> None:
    program = tmp_path / "bin" / "pip-audit"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{pip_audit}\n")
    program.chmod(0o755)
    (tmp_path / ".installed").touch()
    done = subprocess.run(["make", "audit", f"AUDIT={tmp_path}"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is passes
    assert text in done.stdout + done.stderr


def test_every_file_with_pins_is_audited_and_ci_runs_the_audit() -> None:
    pinned = {path.stem.removeprefix("requirements-") for path in (ROOT / ".ci").glob("requirements-*.txt")}
    [audited] = re.findall(r"^AUDITED := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert pinned - set(audited.split()) == {"checkov"}, "it is not part of the product"
    assert "make audit" in (ROOT / ".github" / "workflows" / "ci.yml").read_text()
