"""The icon in the chart's `Chart.yaml`: a picture of the repository as a data URL, which needs no web server."""

from __future__ import annotations

import base64
import re

PREFIX = "data:image/svg+xml;base64,"
_ICON = re.compile(r"^icon: .*$", re.MULTILINE)


def with_icon(about: str, picture: bytes) -> str:
    """Return the text of `Chart.yaml` with this picture as its icon. Raises ValueError if the text has no icon."""
    changed, count = _ICON.subn(f"icon: {PREFIX}{base64.b64encode(picture).decode()}", about)
    if count != 1:
        raise ValueError("Chart.yaml has no line with an icon")
    return changed
