"""Compares the output of a command with the output that a page shows.

Both texts are compared line by line, after these changes:

- A run of spaces is one space, because the width of a column depends on its longest cell.
- Ages (`12s`, `3m4s`), dates, addresses of Pods, the names of simulated nodes, and UIDs are all the same. So are the
  random ends of the names of VMIs.
- `...` in the page stands for any text in a line. A line with only `...` stands for any number of lines.
"""

import re
from collections.abc import Sequence

VARIABLE = (
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"), "<date>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uid>"),
    (re.compile(r"\b10\.\d+\.\d+\.\d+\b"), "<address>"),
    (re.compile(r"\bnode0\d\b"), "<node>"),
    (re.compile(r"(?<![\w.-])(?:\d+d)?(?:\d+h)?(?:\d+m)?(?:\d+s)?(?<=[dhms])(?![\w.-])"), "<age>"),
)
ANY_LINES = "..."


def matches(expected: Sequence[str], seen: str) -> bool:
    pattern = "".join(map(_line_pattern, "\n".join(expected).rstrip().splitlines()))
    return re.fullmatch(pattern, "".join(f"{_plain(line)}\n" for line in seen.rstrip().splitlines())) is not None


def _line_pattern(line: str) -> str:
    if line.strip() == ANY_LINES:
        return r"(?:[^\n]*\n)*?"
    parts = [re.escape(part) for part in _plain(line).split("...")]
    return r"[^\n]*?".join(parts) + r"\n"


def _plain(line: str) -> str:
    for variable, name in VARIABLE:
        line = variable.sub(name, line)
    return re.sub(r"\s+", " ", line).strip()
