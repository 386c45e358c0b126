"""Runs coroutines of synchronous tests in virtual time: a sleep takes no real time.

All tests share one event loop. A property test has many examples, and a new loop for each example takes time. The clock
of the loop is never reset, so a test uses only differences of times.
"""

import asyncio
import atexit
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

import looptime

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on the shared loop."""
    return loop().run_until_complete(work)


@cache
def loop() -> asyncio.AbstractEventLoop:
    made = looptime.new_event_loop(noop_cycles=1)
    atexit.register(made.close)
    return made


def now() -> float:
    """The time of the running loop, in seconds."""
    return asyncio.get_running_loop().time()


class Clock:
    """A clock that a test sets."""

    def __init__(self, now: Any = 100.0) -> None:
        self.now = now

    def __call__(self) -> Any:
        return self.now
