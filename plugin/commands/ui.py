"""`kubectl vmherd ui`: shows replica sets and pools in the browser, until Ctrl-C."""

import asyncio
import logging
import os
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog

from plugin.command import verb
from plugin.connection import Session, carry_out
from plugin.flags import flags_of
from plugin.printing import is_terminal, print_lines
from plugin.ui.html import tag
from plugin.ui.look import Changes, watch
from plugin.ui.server import serving


@verb("ui")
def command(port: int, browser: bool, **values: Any) -> None:
    """Show replica sets and pools in the browser, and every change at once. The page changes nothing, and only this
    machine can open it. Ctrl-C ends it.
    """
    # A watch that is refused logs this. The page says it.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    flags = flags_of(values)
    # Without a screen, a browser would run in this terminal.
    has_screen = sys.platform != "linux" or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())
    carry_out(flags, lambda session: show(session, port, opens=browser and is_terminal() and has_screen))


async def show(session: Session, port: int, *, opens: bool) -> None:
    """Serve the page until the task is cancelled. Raise Failed if the port cannot be used."""
    changes = Changes()
    async with serving(session, changes, port) as address:
        print_lines([address])
        with redirect_to(address) as file:
            if opens:
                await asyncio.to_thread(webbrowser.open, file)
            await watch(session, changes)


@contextmanager
def redirect_to(address: str) -> Iterator[str]:
    """Yield the URI of a page that leads to the address. Only this user can read it.

    Each user of the machine can read the arguments of a browser, so they must not have the token of the address.
    """
    with tempfile.NamedTemporaryFile("w", prefix="vmherd-", suffix=".html") as file:
        file.write(tag("meta", http_equiv="refresh", content=f"0;url={address}"))
        file.flush()
        yield Path(file.name).as_uri()
