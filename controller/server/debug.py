"""The pages under `/debug/`, which `--debug-endpoints` switches on.

The controllers have settled after a change if each cache has seen it, and no key is queued, running or unsettled. A
cache without an event since the change cannot prove that it is up to date: bookmarks arrive only once a minute.
"""

import asyncio
import gc
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from controller.assembly import Assembly
from controller.events.recorder import EventRecorder
from informers.informer import SharedInformer
from informers.meta import ObjectKey
from informers.workqueue import WorkQueue

Page = Callable[[], str]
Informer: TypeAlias = SharedInformer[Any]


def debug_pages(
    kinds: Sequence[Assembly], caches: Sequence[Informer], recorder: EventRecorder, clock: Callable[[], float]
) -> dict[str, Page]:
    """Return the functions that return the text of each page, by the name of the page. Call them on the event loop."""
    return {
        "tasks": describe_tasks,
        "queues": lambda: _queues([kind.controller.queue for kind in kinds], clock()),
        "memory": describe_memory,
        "settled": lambda: _settled(kinds, caches, recorder, clock()),
        "objects": lambda: _objects(caches),
    }


def describe_tasks() -> str:
    """Return each task, and the source lines at which it waits. Call this function on the event loop."""
    lines = []
    for task in sorted(asyncio.all_tasks(), key=asyncio.Task.get_name):
        lines.append(task.get_name())
        # `Task.get_stack` returns only the outermost frame. The innermost frame is the line where the task waits.
        waiting: object = task.get_coro()
        while frame := getattr(waiting, "cr_frame", None):
            lines.append(f"    {frame.f_code.co_qualname} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})")
            waiting = getattr(waiting, "cr_await", None)
    return "\n".join(lines) + "\n"


def describe_memory() -> str:
    """Return the counts of the allocator and garbage collector. With a leak, the number of blocks grows for hours."""
    generations = ", ".join(map(str, gc.get_count()))
    return (
        f"allocated blocks: {sys.getallocatedblocks()}\n"
        f"frozen objects: {gc.get_freeze_count()}\n"
        f"objects that wait for a collection, by generation: {generations}\n"
    )


def _queues(queues: Iterable[WorkQueue[ObjectKey]], now: float) -> str:
    return "".join(
        f"{queue.name}: {len(queue)} keys waiting, the oldest for {queue.oldest_waiting_s(now):.1f}s;"
        f" the longest reconcile so far takes {queue.longest_s(now):.1f}s\n"
        for queue in queues
    )


def _settled(kinds: Iterable[Assembly], caches: Iterable[Informer], recorder: EventRecorder, now: float) -> str:
    """`caches` has the last resourceVersion of each watch, and `kinds` the keys, those in `delayed` with seconds."""
    return _json(
        {
            "caches": {cache.resource.name: cache.seen for cache in caches},
            "kinds": {kind.controller.name: _keys(kind, now) for kind in kinds},
            "unsent_events": recorder.unsent,
        }
    )


def _keys(kind: Assembly, now: float) -> dict[str, Any]:
    keys = kind.controller.keys(now)
    return {
        "queued": _texts(keys.queued),
        "running": _texts(keys.running),
        "unsettled": _texts(kind.unsettled()),
        "delayed": {str(key): round(delay_s, 3) for key, delay_s in keys.delayed.items()},
    }


def _objects(caches: Iterable[Informer]) -> str:
    return _json(
        {
            cache.resource.name: {
                "watches": cache.seen,
                "objects": _texts(each.metadata.key for each in cache.store.values()),
            }
            for cache in caches
        }
    )


def _texts(keys: Iterable[ObjectKey]) -> list[str]:
    return sorted(map(str, keys))


def _json(page: object) -> str:
    return msgspec.json.encode(page).decode() + "\n"
