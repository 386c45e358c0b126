"""Checks names, and generates names. A name is chosen before the create, so that the create can be sent twice (R5).

A suffix is not random. The owner's UID is the seed of an endless stream of letters, and suffix number `n` is the n-th
word of that stream. The same owner always gets the same suffixes in the same order. Different owners get different
suffixes.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from hashlib import shake_128
from typing import Final

SAFE_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' alphabet for generated names. Without vowels it forms no bad words. Without characters that look alike,
it is not misread."""

SUFFIX_LENGTH: Final = 5
BASE_LENGTH: Final = 58
"""The maximum length of the base. With the suffix the name has at most 63 characters, the limit for a label value and
for a host name."""

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)

# The highest byte values are dropped, because 256 is no multiple of the number of letters. So every suffix is equally
# likely.
_FAIR = 256 // len(SAFE_ALPHABET) * len(SAFE_ALPHABET)
_LETTERS = bytes(ord(SAFE_ALPHABET[byte % len(SAFE_ALPHABET)]) for byte in range(256))
_SURPLUS = bytes(range(_FAIR, 256))
_FIRST_READ = 1024


def is_label(text: str) -> bool:
    """True if this can be the name of a namespace or a Service (an RFC 1123 label)."""
    return len(text) <= 63 and _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """True if this can be the name of most objects (an RFC 1123 subdomain).

    As in Kubernetes, only the length of the whole name is limited. A part of it may be longer than a label.
    """
    return len(text) <= 253 and all(map(_LABEL.fullmatch, text.split(".")))


def suffixes(seed: str) -> Iterator[str]:
    """Yields the suffixes of a seed in order, without end. A suffix may occur more than once."""
    key = seed.encode("utf-8", "surrogatepass")
    size, start = _FIRST_READ, 0
    while True:
        # A longer digest begins with the shorter one, so the suffixes that were already read stay the same.
        stream = shake_128(key).digest(size).translate(_LETTERS, _SURPLUS).decode("ascii")
        end = len(stream) - len(stream) % SUFFIX_LENGTH
        for at in range(start, end, SUFFIX_LENGTH):
            yield stream[at : at + SUFFIX_LENGTH]
        size, start = size * 2, end


def free_suffixes(base: str, seed: str, *, taken: Container[str]) -> Iterator[str]:
    """Yields the suffixes whose names are not in `taken`, in order and without duplicates."""
    chosen: set[str] = set()
    for suffix in suffixes(seed):
        if suffix not in chosen and base + suffix not in taken:
            chosen.add(suffix)
            yield suffix


def name_base(*candidates: str | None) -> str:
    """The base of generated names: the first candidate that is not empty, cut so that the suffix fits."""
    return next((candidate for candidate in candidates if candidate), "")[:BASE_LENGTH]
