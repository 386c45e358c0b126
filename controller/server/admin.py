"""The pages under `/debug/` that cost time or change the process: a profile, and the log level.

Only clients on the loopback address may use them, for example through `kubectl port-forward`.
"""

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final

from aiohttp import web

from controller.logs import LEVELS, level, set_level

LOOPBACK: Final = ("127.0.0.1", "::1")
PERIOD_S: Final = 0.005
LONGEST_S: Final = 25
"""The longest profile in seconds. It is shorter than the time limit for an answer."""


def admin_routes() -> list[web.RouteDef]:
    is_running = asyncio.Lock()

    async def profile(request: web.Request) -> web.Response:
        _refuse_others(request)
        seconds = request.query.get("seconds", "5")
        if not seconds.isdecimal() or not 1 <= int(seconds) <= LONGEST_S:
            raise web.HTTPBadRequest(text=f"seconds must be a whole number from 1 to {LONGEST_S}\n")
        if is_running.locked():
            raise web.HTTPConflict(text="another profile is running\n")
        async with is_running:
            stacks = await asyncio.to_thread(_sample, int(seconds))
        return web.Response(text="".join(f"{stack} {number}\n" for stack, number in stacks.most_common()))

    async def show_level(request: web.Request) -> web.Response:
        _refuse_others(request)
        return web.Response(text=f"{level()}\n")

    async def change_level(request: web.Request) -> web.Response:
        _refuse_others(request)
        wanted = request.query.get("level", "")
        if wanted not in LEVELS:
            raise web.HTTPBadRequest(text=f"level must be one of {', '.join(LEVELS)}\n")
        set_level(wanted)
        return await show_level(request)

    return [
        web.get("/debug/profile", profile),
        web.get("/debug/log-level", show_level),
        web.put("/debug/log-level", change_level),
    ]


def _refuse_others(request: web.Request) -> None:
    if request.remote not in LOOPBACK:
        raise web.HTTPForbidden(text="only a client on the loopback address may use this page\n")


def _sample(seconds: int) -> Counter[str]:
    """Count the stacks of all other threads, each as one line: the thread and its functions, from the outermost on."""
    stacks: Counter[str] = Counter()
    pause = threading.Event()
    for _ in range(round(seconds / PERIOD_S)):
        pause.wait(PERIOD_S)
        names = {each.ident: each.name for each in threading.enumerate()}
        for thread, frame in sys._current_frames().items():
            if thread != threading.get_ident():
                stacks[";".join((names.get(thread, "?"), *reversed([*_functions(frame)])))] += 1
    return stacks


def _functions(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        yield f"{frame.f_code.co_qualname} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})"
        frame = frame.f_back
