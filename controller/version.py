"""Which program this is, for people, for the User-Agent and for the metrics page."""

from __future__ import annotations

import os
from importlib import metadata

PROGRAM = "vmherd"


def version() -> str:
    """The installed version, such as "0.1.0"; "unknown" in a source tree that nobody installed."""
    try:
        return metadata.version(PROGRAM)
    except metadata.PackageNotFoundError:
        return "unknown"


def revision() -> str:
    """The commit that an image was built from, as its build says; "" where nobody said."""
    return os.environ.get("VMHERD_REVISION", "")
