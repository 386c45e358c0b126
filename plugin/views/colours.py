"""Colours for a terminal: the word of a state, and the topics of `why`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

RED, GREEN, YELLOW, BOLD, PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[1m", "\x1b[0m"

GOOD: Final = frozenset({"Running", "Succeeded", "Stopped"})
BAD: Final = re.compile(r"Degraded|Failed|.*BackOff|Err.*|.*Error|.*Unschedulable")
WORD: Final = re.compile(r"\A\S+")
TOPICS: Final = {"held": YELLOW, "cause": RED, "try": GREEN}
TOPIC: Final = re.compile(r"\A  (\w+)(?= )")


def coloured_column(lines: Iterable[str], start: int) -> list[str]:
    """Return the lines with a colour for the word at this position."""
    return [line[:start] + WORD.sub(lambda word: _state(word[0]), line[start:]) for line in lines]


def coloured_topic(line: str) -> str:
    """Return a line of `why` with a colour for its topic. The summary has none."""
    return TOPIC.sub(lambda topic: f"  {TOPICS.get(topic[1], BOLD)}{topic[1]}{PLAIN}", line)


def _state(word: str) -> str:
    colour = GREEN if word in GOOD else RED if BAD.fullmatch(word) else YELLOW
    return f"{colour}{word}{PLAIN}"
