"""The chart's README: a text for people, and the table of all values in it."""

from __future__ import annotations

import json
from collections.abc import Iterable

from charts.values import Default, Value

MARKER = "<!-- values -->\n"
LONGEST_DEFAULT = 60


def text(prose: str, values: Iterable[Value]) -> str:
    """The prose with the table in its marker."""
    before, marker, after = prose.partition(MARKER)
    if not marker:
        raise ValueError(f"the README's text has no line {MARKER.strip()}")
    return before + table(values) + after


def table(values: Iterable[Value]) -> str:
    rows = [f"| `{value.name}` | {_shown(value.default)} | {_escaped(value.text)} |\n" for value in values]
    return "| value | default | what it is |\n| --- | --- | --- |\n" + "".join(rows)


def _shown(default: Default) -> str:
    """A default as it is typed. A long one is to be read where it is."""
    shown = json.dumps(default)
    return f"`{shown}`" if len(shown) <= LONGEST_DEFAULT else "see `values.yaml`"


def _escaped(markdown: str) -> str:
    return markdown.replace("|", "\\|")
