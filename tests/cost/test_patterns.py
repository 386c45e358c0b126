"""No text makes a regular expression of the product slow."""

import re
from collections import deque
from itertools import chain
from typing import Any

import pytest

from tests.cost.meter import TooSlow, seconds
from tests.cost.patterns import Use, hard_texts, uses

SIZES = (256, 4096)
"""The numbers of characters of a text. For 4096, a linear expression needs less than 0.1 ms, and a quadratic one 50 ms.
The short text finds the worst expressions soon.
"""

MOST_S = 0.01
USES = list(uses())


def slowest(use: Use) -> str:
    """Return the beginning of the first text for which the expression is slow, or ""."""
    for text in chain.from_iterable(hard_texts(use.pattern, size) for size in SIZES):
        if not any(_is_quick(use, text) for _ in range(3)):
            return repr(text[:40])
    return ""


def _is_quick(use: Use, text: Any) -> bool:
    call = getattr(use.pattern, use.method)
    arguments = ("", text) if use.method in ("sub", "subn") else (text,)
    # The iterator of `finditer` does its work when it is read.
    run = (lambda: deque(call(text), 0)) if use.method == "finditer" else (lambda: call(*arguments))
    try:
        return seconds(run, limit_s=5 * MOST_S) <= MOST_S
    except TooSlow:
        return False


@pytest.mark.parametrize("use", USES, ids=[f"{each.place} {each.method}" for each in USES])
def test_each_pattern_is_quick_for_the_texts_that_are_hard_for_it(use: Use) -> None:
    assert slowest(use) == ""


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"""(?:map\[|&?\w*[\w.]*\{\s*(?:\\?["']|\w+:)|\[\s*\{).*(?:[\]}]|$)""", "search"),
        (r"(a+)+b", "fullmatch"),
        (r"(?:a|a)*b", "fullmatch"),
        (r"\s+$", "search"),
        (r"[0-9]+[a-z]", "findall"),
        (r'"[^"\\]*(?:\\.[^"\\]*)*"', "finditer"),
    ],
)
def test_a_slow_pattern_is_found(pattern: str, method: str) -> None:
    assert slowest(Use(re.compile(pattern), method, "")) != ""
