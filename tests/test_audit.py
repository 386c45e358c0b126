"""The audit of the dependencies never reports success if nothing was checked."""

import importlib.util
import json
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", ROOT / "tools" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def package(name: str, *vulnerabilities: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "version": "1.0",
        "vulns": [{"id": each, "fix_versions": []} for each in vulnerabilities],
        **more,
    }


CANARY = [package("aiohttp", "PYSEC-1")]
SKIPPED = [{"name": "aiohttp", "skip_reason": "Dependency not found on PyPI"}]


@pytest.mark.parametrize(
    ("answers", "code", "text"),
    [
        ([CANARY, [package("a")]], 0, "audit: 0 known vulnerabilities"),
        ([CANARY, [package("a", "CVE-1")]], 1, "a 1.0: CVE-1, mended in no version"),
        ([SKIPPED], 2, "NOTHING WAS CHECKED: no answer for aiohttp"),
        ([[package("aiohttp")]], 2, "knows no vulnerability of aiohttp==3.8.0"),
        ([CANARY, [{"name": "b", "skip_reason": "x"}]], 2, "no answer for b"),
        ([None], 2, "NOTHING WAS CHECKED: ConnectionError: no route"),
    ],
)
def test_the_exit_code_tells_clean_vulnerable_and_unknown_apart(
    audit: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answers: list[list[dict[str, Any]] | None],
    code: int,
    text: str,
) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        answer = answers[min(len(asked), len(answers)) - 1]
        output = "" if answer is None else json.dumps({"dependencies": answer})
        return subprocess.CompletedProcess(command, 0, output, "a line\nConnectionError: no route\n")

    monkeypatch.setattr(subprocess, "run", run)
    assert audit.main() == code
    captured = capsys.readouterr()
    assert text in captured.out + captured.err


def test_every_file_with_pins_is_audited_and_ci_runs_the_audit(audit: ModuleType) -> None:
    pinned = {path.name for path in (ROOT / ".ci").glob("requirements-*.txt")}
    assert pinned - set(audit.PINNED) == {"requirements-checkov.txt"}, "it is not part of the product"
    assert "make audit" in (ROOT / ".github" / "workflows" / "ci.yml").read_text()
