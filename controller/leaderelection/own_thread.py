"""Runs the election in a thread with an event loop of its own, so that a busy main loop does not cost the lease.

The deadman ends the process if the main loop does not answer: it would keep its lease but do nothing.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, TypeAlias

import structlog

from controller.leaderelection.elector import LeaderElector
from controller.running import running

log = structlog.get_logger()

LONGEST_AWAY_S: Final = 60.0
LOOK_S: Final = 1.0

Elected: TypeAlias = Callable[[LeaderElector, asyncio.Event, Callable[[], None]], AbstractAsyncContextManager[bool]]
"""A function with the contract of `LeaderElector.elected`. It calls the last argument every `LOOK_S` seconds."""


@asynccontextmanager
async def elected_in_own_thread(
    elector: LeaderElector, stop: asyncio.Event, look: Callable[[], None]
) -> AsyncIterator[bool]:
    """Run `elector.elected` in a thread of its own while the block runs in this loop. The contract is the same."""
    main, own = asyncio.get_running_loop(), asyncio.SelectorEventLoop()  # its `time` is never a cached time
    leading, over = main.create_future(), asyncio.Event()
    own_stop, own_end = asyncio.Event(), asyncio.Event()

    async def lead() -> None:
        async with elector.elected(own_stop) as leads:
            main.call_soon_threadsafe(leading.set_result, leads)
            try:
                await own_end.wait()
            finally:  # at once: to close the connection takes up to a second
                main.call_soon_threadsafe(over.set)

    async def pass_on_stop() -> None:
        await stop.wait()
        own.call_soon_threadsafe(own_stop.set)
        await over.wait()

    def look_again() -> None:
        look()
        own.call_later(LOOK_S, look_again)

    threading.Thread(target=_run, args=(own,), name="lease", daemon=True).start()
    own.call_soon_threadsafe(look_again)
    ended = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(lead(), own))
    ended.add_done_callback(lambda _: over.set())
    try:
        async with running(pass_on_stop(), over.wait()):
            yield await asyncio.shield(leading)
    except BaseException:
        elector.keep_lease()  # as in `elected`: requests of the block may still be in flight
        raise
    finally:
        for event in (own_stop, own_end):
            own.call_soon_threadsafe(event.set)
        await asyncio.wait([ended])
        own.call_soon_threadsafe(own.stop)
        ended.result()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


class Deadman:
    """Ends the process with exit code 1 if the main loop is `away_s` for too long, and logs what is `at_work`."""

    def __init__(self, away_s: Callable[[], float], at_work: Callable[[], str]) -> None:
        self._away_s, self._at_work = away_s, at_work
        self._was_away = False

    def look(self) -> None:
        """Call this method every `LOOK_S` seconds in another thread."""
        away_s = self._away_s()
        before, self._was_away = self._was_away, away_s > LONGEST_AWAY_S
        # After a pause of the whole process, the main loop answers before the second look.
        if before and self._was_away:
            log.error("the event loop does not answer, ending", away_s=round(away_s, 1), at_work=self._at_work())
            os._exit(1)
