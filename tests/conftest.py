"""What holds for every test: no task is left behind, and properties are tried the same way everywhere."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import signal
from collections.abc import Awaitable, Callable

import hypothesis
import pytest

from sandbox.binaries import BinariesUnavailable, find_binaries

pytest_plugins = ["tests.cluster"]

# Examples take as long as the machine lets them. In CI they are always the same, so that a change is judged by what it
# changes; on a developer's machine they vary, and what fails is remembered.
hypothesis.settings.register_profile("developer", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") == "true" else "developer")

# Ctrl-C is tested, and a shell that starts something in the background has it ignored there, in all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Without this, looptime looks for the current loop in a synchronous test, and opens one that nobody closes.
asyncio.set_event_loop(None)

NEEDED = {"control_plane_binaries": "cluster", "major": "e2e", "promtool": "e2e", "linter": "e2e"}
"""The marker of the tests that have a fixture."""

TURNS = 5
"""How often the loop may turn for what is just about to end: a closed connection, a cancelled task."""


def pytest_configure(config: pytest.Config) -> None:
    """Let looptime ask whether there is a loop, which Python 3.12 and newer warn of and looptime gets by with."""
    config.addinivalue_line("filterwarnings", "ignore:There is no current event loop:DeprecationWarning:looptime")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with what its fixtures need; fail an asynchronous test that leaves a task behind.

    This comes before the selection by marker (`-m`).
    """
    for item in items:
        for fixture in NEEDED.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(NEEDED[fixture])
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.obj = leaving_no_task_behind(item.obj)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Get the control plane's programs before the first test: a build takes minutes, which no test's timeout allows."""
    if session.config.option.collectonly or not any(needs_control_plane(item) for item in session.items):
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled(), contextlib.suppress(BinariesUnavailable):
        find_binaries()  # where this fails, the fixture skips or fails the tests that need them, and says why


def needs_control_plane(item: pytest.Item) -> bool:
    return "control_plane_binaries" in getattr(item, "fixturenames", ())


def leaving_no_task_behind(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Wrap a test so that it looks around when it is done, still in its own loop and, maybe, its virtual time."""

    @functools.wraps(test)
    async def wrapped(*args: object, **kwargs: object) -> None:
        before = asyncio.all_tasks()
        await test(*args, **kwargs)
        for _ in range(TURNS):
            left = asyncio.all_tasks() - before
            if not left:
                return
            await asyncio.sleep(0)
        for task in left:
            task.cancel()
        pytest.fail(f"tasks left behind: {', '.join(sorted(task.get_name() for task in left))}")

    return wrapped
