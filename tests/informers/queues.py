import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import looptime

from informers.ratelimit import ItemBackoff
from informers.workqueue import WorkQueue


def collect_loop_errors() -> list[dict[str, Any]]:
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    return errors


def make_queue(**kwargs: Any) -> WorkQueue[str]:
    return WorkQueue("test", **{"limiter": ItemBackoff(), **kwargs})


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run each example on a loop with virtual time. Fail if the callback of a timer raises an exception."""

    async def without_loop_errors(**example: Any) -> None:
        errors = collect_loop_errors()
        await test(**example)
        assert errors == []

    @functools.wraps(test)
    def run(**example: Any) -> None:
        with asyncio.Runner(loop_factory=lambda: looptime.new_event_loop(noop_cycles=1)) as runner:
            runner.run(without_loop_errors(**example))

    return run
