"""What a Pod knows about itself. This module imports little, so a command that starts may read it."""

from pathlib import Path

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def pod_namespace() -> str:
    """Return the namespace of the Pod in which this process runs, or ""."""
    try:
        return NAMESPACE_FILE.read_text().strip()
    except OSError:
        return ""
