"""Work on large sets and pools is done in another thread, so that the event loop does not wait for it.

Plans, statuses and merges are pure functions of immutable values. So another thread can compute them. They use the
cache only to ask whether a name is in use. That is one look-up in a dictionary, which is safe in every thread.

The number of members and the bytes of the templates decide. It does not matter how much of them a plan reads, because
that is hard to predict: a change of one line in a rule can make a cheap plan expensive. A plan in the other thread is
late by at most a few milliseconds.

Python runs one thread at a time, and changes the thread every few milliseconds. So the event loop continues with short
delays. There is only one such thread for each kind, because each further thread would delay the event loop more.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from controller.runtime.workers.loop_share import USAGE

R = TypeVar("R")

LARGE: Final = 1000
"""The number of members from which a set or pool is planned in the thread. Plans of smaller ones take milliseconds."""

LARGE_BYTES: Final = 64 * 1024
"""The bytes of templates from which the thread is used. A plan takes about 7 ms for each 100 KB of templates."""


def is_large(*, members: int = 0, size: int = 0) -> bool:
    """Return True if work on so many members, or on templates of `size` bytes, needs the thread."""
    return members >= LARGE or size >= LARGE_BYTES


class SideThread:
    """A thread that is started when the first function needs it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan")

    async def call(self, function: Callable[..., R], *arguments: object, large: bool) -> R:
        """Return the result of a pure function, in the thread if `large`: the namespace pays for the CPU time."""
        if not large:
            return function(*arguments)
        usage = USAGE.get()

        def timed() -> R:
            started = time.thread_time()
            try:
                return function(*arguments)
            finally:
                if usage is not None:
                    usage.sum_s += time.thread_time() - started

        return await asyncio.get_running_loop().run_in_executor(self._thread, timed)
