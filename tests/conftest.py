"""Settings for all tests: an asynchronous test must end all its tasks, and property tests share two profiles."""

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

pytest_plugins = ["tests.cluster", "tests.controlplane.waits", "tests.groups"]

# Examples have no time limit. In CI they are always the same, so that only the change under test can make them fail.
# On a developer's machine they vary, and hypothesis stores the failing examples.
hypothesis.settings.register_profile("developer", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") == "true" else "developer")

# Tests send SIGINT. A shell makes its background processes ignore SIGINT, and their children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Without this, looptime opens an event loop in a synchronous test, and nothing closes that loop.
asyncio.set_event_loop(None)

NEEDED = {"control_plane_binaries": "cluster", "major": "e2e", "promtool": "e2e", "linter": "e2e"}
"""For each fixture, the marker of the tests that use the fixture."""

TURNS = 5
"""The number of turns of the event loop in which a closed connection or a cancelled task must end."""


def pytest_configure(config: pytest.Config) -> None:
    """Ignore a warning. looptime asks for the current loop. If no loop exists, Python 3.12 and newer warn."""
    config.addinivalue_line("filterwarnings", "ignore:There is no current event loop:DeprecationWarning:looptime")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the markers of each test's fixtures. If an asynchronous test leaves a task running, the test fails.

    Coverage counts only the tests with fixed cases and without a control plane, because it doubles the CPU time of a
    test. Tests that repeat the same lines for hours of virtual time have the marker `no_cover`, too. This hook runs
    before the selection by marker (`-m`).
    """
    for item in items:
        for fixture in NEEDED.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(NEEDED[fixture])
        if item.get_closest_marker("cluster") or getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("no_cover")
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.obj = leaving_no_task_behind(item.obj)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Get the control plane's programs before the first test. A build can take longer than the timeout of a test."""
    if session.config.option.collectonly or not any(needs_control_plane(item) for item in session.items):
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled(), contextlib.suppress(BinariesUnavailable):
        find_binaries()  # if this fails, the fixture skips or fails the tests that need the programs, and says why


def needs_control_plane(item: pytest.Item) -> bool:
    return "control_plane_binaries" in getattr(item, "fixturenames", ())


def leaving_no_task_behind(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Wrap an asynchronous test, so that it fails if it leaves a task running."""

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
