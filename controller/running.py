"""Runs services in the background while a block of code runs. The block and its services are called a scope.

    async with running(server.run(), recorder.run()):
        async with running(*(informer.run() for informer in informers)):
            await work()

The services of a scope start before its block, in the given order, and stop together after the block. If one returns or
fails before it is cancelled, the other services, the block and the scopes inside are cancelled.

A scope raises failures as an ExceptionGroup, and each outer scope wraps it once more. `leaf_errors` unwraps it.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from typing import Any

import structlog

log = structlog.get_logger()


class ServiceEnded(Exception):
    """A service returned before its scope ended."""


@asynccontextmanager
async def running(*services: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """Run services while the block runs. The block starts after each service has run up to its first `await`.

    Raises an ExceptionGroup with the exceptions of the services and of the block. The group contains a ServiceEnded for
    each service that returned. If the caller is cancelled, CancelledError is raised after the services have stopped.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_serve(service), name=_name_of(service)) for service in services]
        # A task that is cancelled before its first step never runs. Python then warns that the coroutine of the service
        # was never awaited.
        await asyncio.sleep(0)
        yield
        for task in tasks:
            task.cancel()


async def _serve(service: Coroutine[Any, Any, object]) -> None:
    await service
    task = asyncio.current_task()
    # A service may return after it was cancelled. If it returns without a cancellation, that is an error.
    if task is not None and not task.cancelling():
        raise ServiceEnded(f"{_name_of(service)} returned")


def _name_of(service: Coroutine[Any, Any, object]) -> str:
    return str(getattr(service, "__qualname__", "service"))


def leaf_errors(error: BaseException) -> tuple[BaseException, ...]:
    """Return the exceptions of a group and of its nested groups, in order, or else only `error`."""
    if isinstance(error, BaseExceptionGroup):
        return tuple(leaf for inner in error.exceptions for leaf in leaf_errors(inner))
    return (error,)


async def is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait until the event is set, but at most this time. Return False if the event is not set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


@contextmanager
def handling_signals(handle: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Call `handle` on the running loop at each SIGTERM and SIGINT while the block runs."""
    loop, numbers = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, handle, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def stopped_by_signals(stop: asyncio.Event) -> AbstractContextManager[None]:
    """Set `stop` at the first SIGTERM or SIGINT while the block runs. A second signal ends the process immediately."""

    def handle(_: signal.Signals) -> None:
        if stop.is_set():
            log.warning("second signal, ending immediately")
            os._exit(1)
        stop.set()

    return handling_signals(handle)
