"""A signal during the start of a sandbox is not lost, and it does not break Python's import system."""

import os
import signal
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.running import Interrupter, interruptible


class Thing:
    """An object that a weak reference can refer to."""


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def wait() -> None:
    while True:
        time.sleep(0.001)


def interrupted(run: Callable[[Interrupter], None]) -> None:
    """Run a function that a signal must interrupt."""
    with pytest.raises(KeyboardInterrupt), interruptible() as interrupter:
        run(interrupter)


def test_an_import_ends_before_the_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["import os, signal", "os.kill(os.getpid(), signal.SIGINT)", "done = True"]
    (tmp_path / "interrupted_module.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))

    def run(_: Interrupter) -> None:
        import interrupted_module  # type: ignore[import-not-found]  # noqa: F401, PLC0415

        wait()

    interrupted(run)
    assert sys.modules.pop("interrupted_module").done


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_in_a_callback_of_the_garbage_collector_is_not_lost() -> None:
    def run(interrupter: Interrupter) -> None:
        thing = Thing()
        kept = weakref.ref(thing, lambda _: interrupt())
        del thing
        assert kept() is None
        interrupter.check()

    interrupted(run)


def test_without_a_signal_the_check_raises_nothing_and_the_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)]
    with interruptible() as interrupter:
        interrupter.check()
    assert before == [
        signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
    ]
