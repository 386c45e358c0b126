"""Prints results on stdout: text, JSON or YAML. Notes and warnings go to stderr."""

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from plugin.flags import FOR_PROGRAMS, JSON, NAME, WIDE, YAML, Flags
from plugin.views.tables import coloured_column, coloured_topic

MOST_LINES: Final = 40


def clean(line: str) -> str:
    """Return the line without control characters. Texts in objects must not control the user's terminal."""
    return "".join(each if each.isprintable() else "?" for each in line)


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(clean(line), flush=True)


def print_table(lines: Sequence[str]) -> None:
    for line in coloured_table(lines):
        print(line, flush=True)


def coloured_table(lines: Sequence[str]) -> list[str]:
    lines = [clean(line) for line in lines]
    if uses_colours() and lines and "STATUS" in lines[0]:
        return [lines[0], *coloured_column(lines[1:], lines[0].index("STATUS"))]
    return lines


def print_reasons(lines: Iterable[str]) -> None:
    for line in map(clean, lines):
        print(coloured_topic(line) if uses_colours() else line, flush=True)


def uses_colours() -> bool:
    """Return True for a terminal with colours, unless the user has set the variable NO_COLOR."""
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def note(line: str) -> None:
    print(clean(line), file=sys.stderr, flush=True)


def notes_about_missing(missing: Iterable[str]) -> None:
    """Warn that the output above is incomplete. Each line names objects that the user may not read."""
    for line in missing:
        note(f"Warning: not everything is shown: {line}")


def print_value(value: object, output: str) -> None:
    body = msgspec.json.encode(value)
    if output == JSON:
        print(msgspec.json.format(body, indent=4).decode(), flush=True)
    elif output == YAML:
        import yaml  # noqa: PLC0415  only this output needs it

        print(yaml.safe_dump(msgspec.json.decode(body), sort_keys=False), end="", flush=True)


def print_answers(answers: Sequence[object], output: str, *, is_list: bool = False) -> None:
    """Print a single answer without a list, except with `is_list`: the number of answers depends on the cluster. The
    format `name` prints the name in each answer.
    """
    if output == NAME:
        print_lines(each["name"] for each in msgspec.to_builtins(answers))
    elif output in FOR_PROGRAMS:
        print_value(answers[0] if len(answers) == 1 and not is_list else answers, output)


def is_terminal() -> bool:
    return sys.stdout.isatty()


def most_lines(*, live: bool) -> int:
    """Return the largest number of lines of a tree. A live picture also fits on the terminal."""
    return min(MOST_LINES, shutil.get_terminal_size().lines - 1) if live and is_terminal() else MOST_LINES


def width(flags: Flags) -> int:
    """Return the width of the terminal, or 0 if the output is no terminal or wide."""
    return shutil.get_terminal_size().columns if is_terminal() and flags.output != WIDE else 0
