"""The name and version of the program, for people, the User-Agent header and the metrics page."""

from __future__ import annotations

import os
from importlib import metadata

PROGRAM = "vmherd"


def version() -> str:
    """Return the version of the installed package, such as "0.1.0"; "unknown" if the package is not installed."""
    try:
        return metadata.version(PROGRAM)
    except metadata.PackageNotFoundError:
        return "unknown"


def revision() -> str:
    """Return the commit that the image was built from. The image build sets VMHERD_REVISION; "" if it is not set."""
    return os.environ.get("VMHERD_REVISION", "")
