"""Scopes of services: what runs while a block runs, and no longer.

    async with running(server.run(), recorder.run()):
        async with running(*(informer.run() for informer in informers)):
            await work()

Indentation is the lifetime. Services start before the block that they enclose, in the order in which they are named,
and stop after it: inner scopes first, the services of one scope together. A service never returns; one that fails, or
returns, stops the others of its scope, and the block with everything inside. Failures arrive as an ExceptionGroup for
each scope that they pass; `leaf_errors` unwraps them, once, at the outermost place.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


class ServiceEnded(Exception):
    """A service returned while it was needed."""


@asynccontextmanager
async def running(*services: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run services while the block runs. Each has run up to its first wait before the block starts.

    Raises ExceptionGroup with what failed: the services', the block's own exception, or ServiceEnded for a service
    that returned. Cancellation from outside passes through as it came, after the services have stopped.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_serve(service), name=_name_of(service)) for service in services]
        # A task that is cancelled before its first step never runs, and its service would be left un-awaited.
        await asyncio.sleep(0)
        yield
        for task in tasks:
            task.cancel()


async def _serve(service: Coroutine[Any, Any, None]) -> None:
    await service
    me = asyncio.current_task()
    # A service that was told to stop may return: only one that leaves by itself is missed.
    if me is not None and not me.cancelling():
        raise ServiceEnded(f"{_name_of(service)} returned")


def _name_of(service: Coroutine[Any, Any, None]) -> str:
    return str(getattr(service, "__qualname__", "service"))


def leaf_errors(error: BaseException) -> tuple[BaseException, ...]:
    """The failures in an exception: those of its groups, however deep, in their order; or itself."""
    if isinstance(error, BaseExceptionGroup):
        return tuple(leaf for inner in error.exceptions for leaf in leaf_errors(inner))
    return (error,)
