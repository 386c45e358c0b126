"""The name and the version of the program. They are shown to users, to API servers (User-Agent) and in metrics."""

import os
from importlib import metadata

PROGRAM = "vmherd"


def version() -> str:
    """Return the version of the installed package, such as "0.1.0", or "unknown" if the package is not installed."""
    try:
        return metadata.version(PROGRAM)
    except metadata.PackageNotFoundError:
        return "unknown"


def revision() -> str:
    """Return the commit of the image, from the variable VMHERD_REVISION, or "" if it is unknown."""
    return os.environ.get("VMHERD_REVISION", "")
