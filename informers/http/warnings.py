"""Reads the `Warning` headers of answers, and collects their texts for the code that sends the requests.

The API server warns about a write that it carries out: it drops an unknown field, or serves a deprecated version. An
admission webhook can warn, too.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

MOST = 5
LONGEST = 300
"""The largest number of texts that are collected, and the largest number of characters of a text."""

_HEADER: Final = re.compile(r'299 \S++ "((?:[^"\\]++|\\.)*+)"')
_COLLECTED: Final[ContextVar[list[str] | None]] = ContextVar("warnings", default=None)


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Yield a list. Each new warning about a request of this task, or of a task that it starts, is added to the list.

    The list has at most `MOST` texts. The same text is added once.
    """
    texts: list[str] = []
    token = _COLLECTED.set(texts)
    try:
        yield texts
    finally:
        _COLLECTED.reset(token)


def collect(headers: Iterable[str]) -> None:
    """Collect the texts in these values of the header `Warning`. One value can have several warnings (RFC 7234)."""
    texts = _COLLECTED.get()
    if texts is None:
        return
    for escaped in (text for header in headers for text in _HEADER.findall(header)):
        text = " ".join(re.sub(r"\\(.)", r"\1", escaped).split())
        text = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
        if text and text not in texts and len(texts) < MOST:
            texts.append(text)
