"""Checks and generates names. The controller chooses a name before the create, so it can send the create twice (R5).

A suffix is not random. The owner's UID is the seed of an endless stream of letters, and each suffix is the next five.
So each owner always gets its own suffixes in the same order.
"""

import re
from collections.abc import Container, Iterator
from hashlib import shake_128
from typing import Final

SAFE_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' alphabet for generated names: without vowels, so without bad words, and without similar characters."""

NAME_LENGTH: Final = 253
LABEL_LENGTH: Final = 63
SUFFIX_LENGTH: Final = 5

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)

# The stream leaves out the highest byte values, because 256 is not a multiple of the number of letters. So every letter
# has the same probability.
_FAIR = 256 // len(SAFE_ALPHABET) * len(SAFE_ALPHABET)
_LETTERS = bytes(ord(SAFE_ALPHABET[byte % len(SAFE_ALPHABET)]) for byte in range(256))
_SURPLUS = bytes(range(_FAIR, 256))
_FIRST_READ = 1024


def is_label(text: str) -> bool:
    """Return True if the text is a valid name for a namespace or a Service (an RFC 1123 label)."""
    return len(text) <= 63 and _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Return True for an RFC 1123 subdomain of valid length. As in Kubernetes, its parts may have any length."""
    return len(text) <= 253 and all(map(_LABEL.fullmatch, text.split(".")))


def cut(name: str, length: int) -> str:
    """Return at most `length` characters of the name, without a dot or hyphen at the end, which is not valid."""
    return name if len(name) <= length else name[:length].rstrip("-.")


def cut_apart(name: str, length: int) -> str:
    """Return the name with at most `length` characters. If it is cut, a digest keeps different names different."""
    return name if len(name) <= length else f"{cut(name, length - 9)}-{shake_128(name.encode()).hexdigest(4)}"


def suffixes(seed: str) -> Iterator[str]:
    """Yield the suffixes of a seed in order, without end. The same suffix may occur more than once."""
    key = seed.encode("utf-8", "surrogatepass")
    size, start = _FIRST_READ, 0
    while True:
        # A longer digest begins with the bytes of a shorter digest. So the earlier suffixes stay the same.
        stream = shake_128(key).digest(size).translate(_LETTERS, _SURPLUS).decode("ascii")
        end = len(stream) - len(stream) % SUFFIX_LENGTH
        for at in range(start, end, SUFFIX_LENGTH):
            yield stream[at : at + SUFFIX_LENGTH]
        size, start = size * 2, end


def free_suffixes(base: str, seed: str, *, taken: Container[str]) -> Iterator[str]:
    """Yield the suffixes in order and without duplicates. Leave out a suffix if `base` + suffix is in `taken`."""
    chosen: set[str] = set()
    for suffix in suffixes(seed):
        if suffix not in chosen and base + suffix not in taken:
            chosen.add(suffix)
            yield suffix


def name_base(*candidates: str | None) -> str:
    """Return the first candidate that is not empty, cut to 58 characters, or ""."""
    return cut(next(filter(None, candidates), ""), LABEL_LENGTH - SUFFIX_LENGTH)
