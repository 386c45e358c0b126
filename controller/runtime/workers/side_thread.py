"""Plans of large sets and pools are made in another thread, so that the event loop does not wait for them.

Plans and statuses are pure functions of an immutable snapshot. So another thread can compute them. They use the cache
only to ask whether a name is in use. That is one look-up in a dictionary, which is safe in every thread.

The number of members alone decides. It does not matter how many of them a plan reads, because that is hard to predict:
a change of one line in a rule can make a cheap plan expensive. A plan in the other thread is late by at most a few
milliseconds.

Python runs one thread at a time, and changes the thread every few milliseconds. So the event loop continues with short
delays. There is only one such thread for each kind, because each further thread would delay the event loop more.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

R = TypeVar("R")

LARGE: Final = 1000
"""The number of members from which a set or pool is planned in the thread. Plans of smaller ones take milliseconds."""


class SideThread:
    """A thread that is started when the first function needs it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan")

    async def call(self, function: Callable[..., R], *arguments: object, members: int) -> tuple[R, float]:
        """Return the result of a pure function, and the CPU time in seconds that the function has used.

        `members` is the number of members of the set or pool.
        """

        def timed() -> tuple[R, float]:
            started = time.thread_time()
            result = function(*arguments)
            return result, time.thread_time() - started

        if members < LARGE:
            return timed()
        return await asyncio.get_running_loop().run_in_executor(self._thread, timed)
