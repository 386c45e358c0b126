"""Looks for known vulnerabilities in the pinned packages: `make audit`.

pip-audit asks the advisory database of PyPI for each package in `.ci/requirements-*.txt`. The exit code is:

    0  no pinned package has a known vulnerability
    1  a package has a known vulnerability
    2  nothing is known: the database cannot be reached, or does not answer for a package

pip-audit itself ends with 0 if the database answers for no package. So this program first asks about a package with
known vulnerabilities, and each package without an answer is an error.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CI = Path(__file__).resolve().parent.parent / ".ci"
NAMES = ("run", "build", "plugin", "dev", "audit", "release", "docs", "workflows")
PINNED = tuple(f"requirements-{name}.txt" for name in NAMES)
CANARY = "aiohttp==3.8.0\n"
CLEAN, VULNERABLE, UNKNOWN = 0, 1, 2
TIMEOUT_S = 300


class Unanswered(Exception):
    """The database cannot be asked. `str()` says why."""


def main() -> int:
    try:
        ask_about_canary()
        found = [finding for name in PINNED for finding in findings(ask(CI / name))]
    except Unanswered as error:
        print(f"audit: NOTHING WAS CHECKED: {error}", file=sys.stderr)
        return UNKNOWN
    for line in sorted(set(found)):
        print(line)
    print(f"audit: {len(set(found))} known vulnerabilities in the packages of {', '.join(PINNED)}")
    return VULNERABLE if found else CLEAN


def ask_about_canary() -> None:
    """Ask about a package with known vulnerabilities. Raises Unanswered if the database does not know them."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as canary:
        canary.write(CANARY)
        canary.flush()
        if not findings(ask(Path(canary.name))):
            raise Unanswered(f"the database knows no vulnerability of {CANARY.strip()}")


def ask(requirements: Path) -> list[dict[str, Any]]:
    """Return pip-audit's answer for each package of a file with pinned packages. Raises Unanswered."""
    options = ("--disable-pip", "--no-deps", "--format", "json", "--progress-spinner", "off")
    command = [sys.executable, "-m", "pip_audit", *options, "--requirement", str(requirements)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except subprocess.TimeoutExpired as error:
        raise Unanswered(f"no answer within {TIMEOUT_S} s") from error
    except (ValueError, KeyError) as error:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise Unanswered(last[:300]) from error
    for package in packages:
        if "skip_reason" in package:
            raise Unanswered(f"no answer for {package['name']}: {package['skip_reason']}")
    return packages


def findings(packages: list[dict[str, Any]]) -> list[str]:
    """Return one line for each known vulnerability."""
    return [
        f"{package['name']} {package['version']}: {each['id']}, mended in "
        f"{', '.join(each['fix_versions']) or 'no version'}"
        for package in packages
        for each in package.get("vulns", ())
    ]


if __name__ == "__main__":
    sys.exit(main())
