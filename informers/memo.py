"""Remembers results of a function that is costly and depends only on its arguments."""

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from threading import Lock
from typing import Final, Generic, TypeVar

import msgspec

A = TypeVar("A")
R = TypeVar("R")

BUDGET: Final = 16 * 1024 * 1024
"""The largest size, in bytes, of the results that one memo remembers."""

OVERHEAD: Final = 1024
"""The memory of an entry without its texts, in bytes."""


class Memo(Generic[R]):
    """A pure function that remembers results within a budget of bytes, by a digest of the arguments as JSON."""

    def __init__(self, function: Callable[..., R], budget: int = BUDGET) -> None:
        self._function = function
        self._budget = budget
        self._lock = Lock()
        self._known: OrderedDict[bytes, tuple[R, int]] = OrderedDict()
        self.size = 0

    def __call__(self, *arguments: object) -> R:
        key = blake2b(msgspec.json.encode(arguments), digest_size=16).digest()
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key][0]
        result = self._function(*arguments)
        size = OVERHEAD + 2 * len(msgspec.json.encode(result))
        with self._lock:
            self.size += size - self._known.pop(key, (result, 0))[1]
            self._known[key] = result, size
            while self.size > self._budget:
                self.size -= self._known.popitem(last=False)[1][1]
        return result


class LastResult(Generic[A, R]):
    """A pure function of an immutable value that remembers its last result, while it gets the same object again."""

    def __init__(self, function: Callable[[A], R]) -> None:
        self._function = function
        self._last: tuple[A, R] | None = None

    def __call__(self, argument: A) -> R:
        last = self._last
        if last is None or last[0] is not argument:
            last = self._last = None  # a large result goes before the next one is made
            self._last = last = argument, self._function(argument)
        return last[1]
