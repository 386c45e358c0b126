"""Prints results on stdout: text, JSON or YAML. Notes and warnings go to stderr."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable

import msgspec

from plugin.flags import JSON, YAML


def clean(line: str) -> str:
    """Return the line without control characters. Texts in objects must not control the user's terminal."""
    return "".join(each if each.isprintable() else "?" for each in line)


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(clean(line), flush=True)


def note(line: str) -> None:
    print(clean(line), file=sys.stderr, flush=True)


def notes_about_missing(missing: Iterable[str]) -> None:
    """Warn that the output above is incomplete. Each line names objects that the user may not read."""
    for line in missing:
        note(f"Warning: not everything is shown: {line}")


def print_value(value: object, output: str) -> None:
    """Print a value as JSON or YAML."""
    body = msgspec.json.encode(value)
    if output == JSON:
        print(msgspec.json.format(body, indent=4).decode(), flush=True)
    elif output == YAML:
        import yaml  # noqa: PLC0415  only this output needs it

        print(yaml.safe_dump(msgspec.json.decode(body), sort_keys=False), end="", flush=True)


def is_terminal() -> bool:
    return sys.stdout.isatty()


def width() -> int:
    """Return the width of the terminal, or 0 if the output is no terminal."""
    return shutil.get_terminal_size().columns if is_terminal() else 0
