"""Reads the commands of a Markdown page, with the output that the page shows.

A page has its commands in fences of the language `console`. A line that starts with `$ ` is a command. The command
goes on after a backslash at the end of the line, inside quotes, and after `<<'END'` up to the line `END`. The lines
below a command are its output. A comment directly above a fence can mark the commands of the fence:

    <!-- not run: the reason -->     no test runs the commands
    <!-- exit code: 1 -->            the last command fails with this code
    <!-- file: docs/examples/x -->   the fence has the content of this file
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

FENCE = re.compile(
    r"^(?: *<!-- (?P<mark>[^>]*?) -->\n)?(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
PROMPT = "$ "
NOT_RUN, EXIT_CODE, FILE = "not run: ", "exit code: ", "file: "
HEREDOC = re.compile(r"<<'(\w+)'")


class Fence(Struct, frozen=True):
    """A fence of a page. `mark` is the comment above the fence, or ""."""

    language: str
    mark: str
    lines: tuple[str, ...]
    first_line: int

    def marked(self, kind: str) -> str:
        return self.mark.removeprefix(kind) if self.mark.startswith(kind) else ""


class Step(Struct, frozen=True):
    """A command, and the lines of its output. If the page shows no output, `output` is empty."""

    command: str
    output: tuple[str, ...]
    code: int
    line: int
    not_run: str = ""


def fences_of(page: Path) -> list[Fence]:
    text = page.read_text()
    return [_fence(found, text) for found in FENCE.finditer(text)]


def steps_of(page: Path) -> list[Step]:
    """All commands of a page, in the order of the page, also those that no test runs."""
    return [step for fence in fences_of(page) if fence.language == "console" for step in _steps(fence)]


def words_of(command: str) -> list[str]:
    """The words of the first line of a command, without comments."""
    try:
        return shlex.split(command.splitlines()[0], comments=True)
    except ValueError:  # a quotation that ends in a later line
        return command.split()


def _fence(found: re.Match[str], text: str) -> Fence:
    indent = len(found["indent"])
    lines = tuple(line[indent:] for line in found["text"].splitlines())
    first = text.count("\n", 0, found.start("text")) + 1
    return Fence(found["language"], found["mark"] or "", lines, first)


def _steps(fence: Fence) -> Iterator[Step]:
    starts = _starts(fence.lines)
    if not starts or starts[0] != 0:
        raise ValueError(f"line {fence.first_line}: a fence of commands must start with a command")
    for start, end in zip(starts, [*starts[1:], len(fence.lines)], strict=True):
        after = _end_of_command(fence.lines, start)
        command = "\n".join(fence.lines[start:after]).removeprefix(PROMPT)
        output = tuple(line for line in fence.lines[after:end])
        code = int(fence.marked(EXIT_CODE) or 0) if end == len(fence.lines) else 0
        yield Step(command, output, code, fence.first_line + start, fence.marked(NOT_RUN))


def _starts(lines: Sequence[str]) -> list[int]:
    """The numbers of the lines with a new command. A line inside a document is no new command."""
    starts, inside_until = [], 0
    for number, line in enumerate(lines):
        if number >= inside_until and line.startswith(PROMPT):
            starts.append(number)
            inside_until = _end_of_command(lines, number)
    return starts


def _end_of_command(lines: Sequence[str], start: int) -> int:
    """The number of the line after the command that starts in the line `start`."""
    number = start
    while _goes_on("\n".join(lines[start : number + 1])) and number + 1 < len(lines):
        number += 1
    if document := HEREDOC.search(lines[number]):
        number = lines.index(document[1], number)
    return number + 1


def _goes_on(command: str) -> bool:
    if command.endswith("\\"):
        return True
    try:
        shlex.split(command, comments=True)
    except ValueError:  # an open quotation
        return True
    return False
