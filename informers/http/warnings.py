"""Reads the `Warning` headers of answers, and collects their texts for the code that sends the requests.

The API server warns about an unknown field that it drops or a deprecated version. A webhook can warn, too.
"""

import re
from collections.abc import Callable, Iterable, Iterator, ValuesView
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

MOST = 5
LONGEST = 300
"""The largest number of texts that are collected, and the largest number of characters of a text."""

_HEADER: Final = re.compile(r'299 \S++ "((?:[^"\\]++|\\.)*+)"')
_COLLECTED: Final[ContextVar[dict[str, str] | None]] = ContextVar("warnings, as received and as shown", default=None)
_REWRITE: Final[ContextVar[Callable[[str], str]]] = ContextVar("rewrite of warnings", default=lambda text: text)


@contextmanager
def collected_warnings() -> Iterator[ValuesView[str]]:
    """Yield a view of the warnings about requests of this task and of its tasks: each text once, at most `MOST`."""
    texts: dict[str, str] = {}
    token = _COLLECTED.set(texts)
    try:
        yield texts.values()
    finally:
        _COLLECTED.reset(token)


@contextmanager
def rewritten_warnings(rewrite: Callable[[str], str]) -> Iterator[None]:
    """Replace the text of each warning that is collected while the block runs by the result of `rewrite`."""
    token = _REWRITE.set(rewrite)
    try:
        yield
    finally:
        _REWRITE.reset(token)


def collect(headers: Iterable[str]) -> None:
    """Collect the texts in these values of the header `Warning`. One value can have several warnings (RFC 7234)."""
    texts = _COLLECTED.get()
    if texts is None:
        return
    for escaped in (text for header in headers for text in _HEADER.findall(header)):
        text = " ".join(re.sub(r"\\(.)", r"\1", escaped).split())
        if len(text) > LONGEST:
            # No part of a word remains, because `rewrite` knows only whole words.
            before, _, last = text[: LONGEST - 3].rpartition(" ")
            text = f"{before or last}..."
        if text and text not in texts and len(texts) < MOST:
            texts[text] = _REWRITE.get()(text)
