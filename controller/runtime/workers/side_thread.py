"""Work on large sets and pools is done in another thread, so that the event loop does not wait for it.

Plans, statuses and merges are pure functions of immutable values. They only look up names in the cache, which is safe
in every thread. The number of members and the bytes of the templates decide, because the cost of a plan is hard to
predict. There is one thread for each kind: each further one would delay the event loop by some milliseconds more.
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
