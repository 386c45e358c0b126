"""Names: which are valid, and those that are chosen before the write, so that a create can be sent twice (R5).

A suffix is not drawn but looked up: the owner's UID seeds an endless stream of letters, and slot `n` is its n-th word.
The same owner meets the same suffixes in the same order for ever, different owners meet different ones.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from hashlib import shake_128
from typing import Final

SAFE_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' alphabet for generated names: no vowels and no look-alikes, so no bad words and no misreading."""

SUFFIX_LENGTH: Final = 5
BASE_LENGTH: Final = 58
"""With the suffix 63 characters: the longest name that can still be a label value or a host name."""

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)

# Bytes that do not divide evenly among the letters are dropped, so that every suffix is equally likely.
_FAIR = 256 // len(SAFE_ALPHABET) * len(SAFE_ALPHABET)
_LETTERS = bytes(ord(SAFE_ALPHABET[byte % len(SAFE_ALPHABET)]) for byte in range(256))
_SURPLUS = bytes(range(_FAIR, 256))
_FIRST_READ = 1024


def is_label(text: str) -> bool:
    """True if this can be the name of a namespace or a Service (an RFC 1123 label)."""
    return len(text) <= 63 and _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """True if this can be the name of most objects (an RFC 1123 subdomain).

    As in Kubernetes, only the whole name has a limit: its parts may be longer than a label.
    """
    return len(text) <= 253 and all(map(_LABEL.fullmatch, text.split(".")))


def suffixes(seed: str) -> Iterator[str]:
    """The suffixes of a seed, slot by slot, without end. They may repeat."""
    key = seed.encode("utf-8", "surrogatepass")
    size, start = _FIRST_READ, 0
    while True:
        # A longer digest begins with the shorter one, so the words read so far stay where they are.
        stream = shake_128(key).digest(size).translate(_LETTERS, _SURPLUS).decode("ascii")
        end = len(stream) - len(stream) % SUFFIX_LENGTH
        for at in range(start, end, SUFFIX_LENGTH):
            yield stream[at : at + SUFFIX_LENGTH]
        size, start = size * 2, end


def free_suffixes(base: str, seed: str, *, taken: Container[str]) -> Iterator[str]:
    """The suffixes whose names nobody has, each once, lowest slot first."""
    chosen: set[str] = set()
    for suffix in suffixes(seed):
        if suffix not in chosen and base + suffix not in taken:
            chosen.add(suffix)
            yield suffix


def name_base(*candidates: str | None) -> str:
    """What generated names begin with: the first candidate that says anything, cut to leave room for the suffix."""
    return next((candidate for candidate in candidates if candidate), "")[:BASE_LENGTH]
