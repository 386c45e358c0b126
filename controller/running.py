"""Scopes of services: `running` runs services for as long as its block runs.

    async with running(server.run(), recorder.run()):
        async with running(*(informer.run() for informer in informers)):
            await work()

The services of a scope start before its block, in the given order, and stop after the block. Inner scopes stop before
outer scopes. The services of one scope stop together.

A service must not return. If a service returns or fails, the other services of its scope and the block are cancelled,
including all inner scopes.

Failures arrive as an ExceptionGroup. Each outer scope that a failure passes adds one more group around it. Call
`leaf_errors` once, outside all scopes, to get the exceptions out of the groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


class ServiceEnded(Exception):
    """A service returned before its scope ended."""


@asynccontextmanager
async def running(*services: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run services while the block runs. Each service has run up to its first `await` before the block starts.

    Raises an ExceptionGroup with the exceptions of the services and of the block, and with ServiceEnded for each
    service that returned. If the caller is cancelled, CancelledError is raised after the services have stopped.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_serve(service), name=_name_of(service)) for service in services]
        # A task that is cancelled before its first step never runs. Python then warns that the coroutine of the service
        # was never awaited.
        await asyncio.sleep(0)
        yield
        for task in tasks:
            task.cancel()


async def _serve(service: Coroutine[Any, Any, None]) -> None:
    await service
    task = asyncio.current_task()
    # A service that was cancelled may return. Any other return is an error.
    if task is not None and not task.cancelling():
        raise ServiceEnded(f"{_name_of(service)} returned")


def _name_of(service: Coroutine[Any, Any, None]) -> str:
    return str(getattr(service, "__qualname__", "service"))


def leaf_errors(error: BaseException) -> tuple[BaseException, ...]:
    """Return the exceptions of a group and its nested groups, in order; for any other exception, return it alone."""
    if isinstance(error, BaseExceptionGroup):
        return tuple(leaf for inner in error.exceptions for leaf in leaf_errors(inner))
    return (error,)
