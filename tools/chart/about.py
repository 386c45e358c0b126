"""The parts of the chart's `Chart.yaml`, of its README and of the Dockerfile that have another source.

The version and the address of the project come from `pyproject.toml`. The icon is a picture of the repository as a data
URL, which needs no web server.
"""

import base64
import json
import re
from collections.abc import Iterable

from tools.chart.values import Default, Value
from tools.reference.markdown import code, table
from tools.release.project import Project

PREFIX = "data:image/svg+xml;base64,"
MARKER = "@VERSION@"


def with_icon(about: str, picture: bytes) -> str:
    """Return the text of `Chart.yaml` with this picture as its icon. Raises ValueError if the text has no icon."""
    return _replaced(about, r"^icon: .*$", f"icon: {PREFIX}{base64.b64encode(picture).decode()}", "icon")


def with_facts(about: str, known: Project) -> str:
    for field in ("version", "appVersion"):
        about = _replaced(about, rf"^{field}: .*$", f"{field}: {known.version}", field)
    about = _replaced(about, r"^home: .*$", f"home: {known.home}", "address of the project")
    about = _replaced(about, r"(?<=^sources:\n)  - .*$", f"  - {known.home}", "address of the source")
    return _replaced(about, r"^    url: .*$", f"    url: {known.home}", "address of a maintainer")


def dockerfile(text: str, known: Project) -> str:
    return _replaced(text, r"^ARG VERSION=.*$", f"ARG VERSION={known.version}", "ARG VERSION")


def _replaced(text: str, line: str, new: str, name: str) -> str:
    changed, count = re.subn(line, lambda _: new, text, flags=re.MULTILINE)
    if count != 1:
        raise ValueError(f"there is no line with an {name}" if not count else f"there are {count} lines with an {name}")
    return changed


VALUES = "<!-- values -->\n"
LONGEST_DEFAULT = 60


def readme(prose: str, values: Iterable[Value]) -> str:
    before, marker, after = prose.partition(VALUES)
    if not marker:
        raise ValueError(f"tools/chart/README.md.in has no line {VALUES.strip()}")
    rows = [(code(value.name), _shown(value.default), value.text) for value in values]
    return before + table(("value", "default", "description"), rows) + after


def _shown(default: Default) -> str:
    shown = json.dumps(default)
    return code(shown) if len(shown) <= LONGEST_DEFAULT else "see `values.yaml`"
