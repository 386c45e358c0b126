"""The chart's README: a handwritten text and a generated table of all values."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tools.chart.values import Default, Value

MARKER = "<!-- values -->\n"
LONGEST_DEFAULT = 60


def text(prose: str, values: Iterable[Value]) -> str:
    """Return the text `prose`, with the table of values instead of the marker."""
    before, marker, after = prose.partition(MARKER)
    if not marker:
        raise ValueError(f"tools/chart/README.md.in has no line {MARKER.strip()}")
    return before + table(values) + after


def table(values: Iterable[Value]) -> str:
    rows = [f"| `{value.name}` | {_shown(value.default)} | {_escaped(value.text)} |\n" for value in values]
    return "| value | default | description |\n| --- | --- | --- |\n" + "".join(rows)


def _shown(default: Default) -> str:
    """Return the default as JSON, or a reference to `values.yaml` if the default is long."""
    shown = json.dumps(default)
    return f"`{shown}`" if len(shown) <= LONGEST_DEFAULT else "see `values.yaml`"


def _escaped(markdown: str) -> str:
    return markdown.replace("|", "\\|")
