"""Tables in the form of kubectl, with colours and ages.

A table is a line of headers, and columns with two or more spaces between them, without borders.
"""

import re
import textwrap
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from controller.apimachinery.conditions import with_timezone

GAP = 3

NARROWEST, WRAPPED = 16, 3
"""The least width of a long column, and the largest number of lines of a last column that wraps."""


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, width: int = 0, wraps: bool = False) -> list[str]:
    """Return the lines of a table. If `width` is not 0, no line is longer.

    First the space between the columns shrinks. Then the widest columns lose the middle of their texts, because the end
    of a name tells VMs apart. The last column is cut last. With `wraps`, it has up to `WRAPPED` lines, which end at
    words.
    """
    cells = [tuple(headers), *(tuple(row) for row in rows)]
    *widths, last = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    gap = next((gap for gap in (GAP, 2) if sum(widths) + last + gap * len(widths) <= width), 1) if width else GAP
    wish = min(last, max(last // WRAPPED, NARROWEST)) if wraps else last
    while width and sum(widths) + gap * len(widths) + wish > width and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1
    start = sum(wide + gap for wide in widths)
    room = width - start if wraps and width - start >= NARROWEST else 0
    lines = []
    for row in cells:
        before = "".join(without_middle(text, wide).ljust(wide + gap) for text, wide in zip(row, widths, strict=False))
        first, *others = wrapped(row[-1], room)[:WRAPPED] if room else [row[-1]]
        lines.append(f"{before}{first}".rstrip())
        lines += [f"{'':{start}}{each}" for each in others]
        if room and len(wrapped(row[-1], room)) > WRAPPED:
            lines[-1] = shortened(f"{lines[-1]} ...", width)
    return [shortened(line, width) for line in lines]


def wrapped(text: str, room: int) -> list[str]:
    """Return lines of at most `room` characters that end at words, or one line if `room` is 0."""
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""] if room else [text]


def without_middle(text: str, room: int) -> str:
    """Return the text with at most `room` characters. Its beginning and its end stay."""
    kept = room - 3
    return text if len(text) <= room else f"{text[: kept // 2]}...{text[kept // 2 - kept :]}"


def shortened(line: str, width: int) -> str:
    """Return the line with at most `width` characters. The width 0 means no limit."""
    return line if not width or len(line) <= width else f"{line[: max(width - 3, 0)]}..."


def printable(text: str) -> str:
    """Line breaks and tabs become spaces. Other characters that a terminal cannot print become `?`."""
    return "".join(each if each.isprintable() else "?" for each in " ".join(text.split()))


RED, GREEN, YELLOW, BOLD, PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[1m", "\x1b[0m"

GOOD: Final = frozenset({"Running", "Succeeded", "Stopped"})
BAD: Final = re.compile(r"Degraded|Failed|.*BackOff|Err.*|.*Error|.*Unschedulable")
WORD: Final = re.compile(r"\A\S+")
TOPICS: Final = {"held": YELLOW, "cause": RED, "try": GREEN, "fence": RED}
TOPIC: Final = re.compile(r"\A  (\w+)(?= )")


def coloured_column(lines: Iterable[str], start: int) -> list[str]:
    return [line[:start] + WORD.sub(lambda word: _state(word[0]), line[start:]) for line in lines]


def coloured_topic(line: str) -> str:
    """Return a line of `why` with a colour for its topic. The summary has none."""
    return TOPIC.sub(lambda topic: f"  {TOPICS.get(topic[1], BOLD)}{topic[1]}{PLAIN}", line)


def _state(word: str) -> str:
    colour = GREEN if word in GOOD else RED if BAD.fullmatch(word) else YELLOW
    return f"{colour}{word}{PLAIN}"


MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def age(then: datetime | None, now: datetime) -> str:
    """Return the time since `then`, or `<unknown>` if `then` is None."""
    then = with_timezone(then)
    return "<unknown>" if then is None else short((now - then).total_seconds())


def short(seconds: float) -> str:
    """Return a duration with one or two units, as kubectl does."""
    whole = max(int(seconds), 0)
    if whole < 2 * MINUTE:
        return f"{whole}s"
    if whole < 10 * MINUTE:
        return _two(whole, MINUTE, "m", 1, "s")
    if whole < 3 * HOUR:
        return f"{whole // MINUTE}m"
    if whole < 8 * HOUR:
        return _two(whole, HOUR, "h", MINUTE, "m")
    if whole < 2 * DAY:
        return f"{whole // HOUR}h"
    return _two(whole, DAY, "d", HOUR, "h") if whole < 8 * DAY else f"{whole // DAY}d"


def _two(seconds: int, large: int, large_unit: str, small: int, small_unit: str) -> str:
    first, rest = divmod(seconds, large)
    second = rest // small
    return f"{first}{large_unit}" + (f"{second}{small_unit}" if second else "")
