"""Plans of large sets and pools are made in another thread, so that the event loop does not wait for them.

Plans and statuses are pure functions of an immutable snapshot. So another thread can compute them. They use the cache
only to ask whether a name is in use. That is one look-up in a dictionary, which is safe in every thread.

Python runs one thread at a time, and changes the thread every few milliseconds. So the event loop continues with short
delays. There is only one such thread for each kind, because each further thread would delay the event loop more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

R = TypeVar("R")

LARGE: Final = 1000
"""A plan that reads at least this number of members one by one needs the thread. Any other plan takes a few
milliseconds.
"""


class SideThread:
    """A thread that is started when the first function needs it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan")

    async def call(self, function: Callable[..., R], *arguments: object, reads: int) -> tuple[R, float]:
        """Return the result of a pure function, and the time in seconds that the function has used.

        `reads` is the number of members that the function reads one by one. The thread is used only if this number is
        large.
        """
        loop = asyncio.get_running_loop()

        def timed() -> tuple[R, float]:
            started = loop.time()
            result = function(*arguments)
            return result, loop.time() - started

        return timed() if reads < LARGE else await loop.run_in_executor(self._thread, timed)
