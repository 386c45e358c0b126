"""Tables in the form of kubectl: a line of headers, columns with two or more spaces between them, no borders."""

from __future__ import annotations

from collections.abc import Sequence

GAP = 3


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, width: int = 0) -> list[str]:
    """Return the lines of a table. If `width` is not 0, a longer line ends with `...` at this width."""
    cells = [tuple(headers), *(tuple(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    lines = ("".join(text.ljust(wide + GAP) for text, wide in zip(row, widths, strict=True)).rstrip() for row in cells)
    return [shortened(line, width) for line in lines]


def shortened(line: str, width: int) -> str:
    """Return the line with at most `width` characters. The width 0 means no limit."""
    return line if not width or len(line) <= width else f"{line[: max(width - 3, 0)]}..."


def printable(text: str) -> str:
    """Return the text in one line. Line breaks and tabs become spaces. Other characters that a terminal cannot print
    become `?`.
    """
    return "".join(each if each.isprintable() else "?" for each in " ".join(text.split()))
