"""Renders many similar objects from one recorded object."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import count

FIRST_SAMPLE = 76_543
"""The lowest number of a recorded object. Texts with so large a number occur nowhere else in the JSON."""

VERSION = "resourceVersion"


class Pattern:
    """The JSON of one object, with gaps for the texts that differ from object to object.

    `make` returns the object with a number. `texts` returns the texts of the object with a number, by a key of its own
    choice. The first object gives the pattern, so rendering costs about a microsecond.
    """

    def __init__(self, make: Callable[[int], bytes], texts: Callable[[int], Mapping[str, str]]) -> None:
        self.texts = texts
        number = next(each for each in count(FIRST_SAMPLE) if len(set(texts(each).values())) == len(texts(each)))
        sample, keys = make(number), {text.encode(): key for key, text in texts(number).items()}
        sample = re.sub(
            rb'("resourceVersion":")\d+', rb"\g<1>%(" + VERSION.encode() + rb")b", _escaped(sample), count=1
        )
        # A longer text comes first, because it may contain a shorter one.
        longest_first = sorted(keys, key=len, reverse=True)
        gaps = re.compile(
            b"|".join(rf"(?<![\w-]){re.escape(text.decode())}(?![\w-])".encode() for text in longest_first)
        )
        self._format = gaps.sub(lambda found: f"%({keys[found.group()]})b".encode(), sample)

    def render(self, number: int, version: int) -> bytes:
        """Return the object with this number and this resourceVersion."""
        values = {key.encode(): text.encode() for key, text in self.texts(number).items()}
        values[VERSION.encode()] = b"%d" % version
        return self._format % values


def _escaped(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")
