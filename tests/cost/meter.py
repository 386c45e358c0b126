"""Counts what a call costs: the executed instructions of Python, and the CPU time of its thread.

The count of instructions does not depend on the machine. It does not see the work of C code, such as `list.index` or a
regular expression. So C code is measured by time, on larger inputs and with a generous limit.
"""

import gc
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any

from informers.memo import Memo

Call = Callable[[], object]
TOOL = 4
"""An identifier of `sys.monitoring` that debuggers, coverage and profilers do not use."""

PRODUCT = ("controller", "informers", "plugin")


class TooSlow(Exception):
    """A call took longer than its limit, and was stopped."""


class Meter:
    """The number of instructions that a thread executes. `most` stops a call that needs more.

    Instructions of other threads do not count, such as those of the thread that a test worker has for its messages.
    """

    def __init__(self, most: int) -> None:
        self.instructions = 0
        self._most = most
        self._thread = threading.get_ident()

    def count(self, call: Call) -> int:
        self.instructions = 0
        with _without_collection(), self._monitored() if sys.version_info >= (3, 12) else self._traced():
            call()
        return self.instructions

    @contextmanager
    def _monitored(self) -> Iterator[None]:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        monitoring.use_tool_id(TOOL, "cost")
        monitoring.register_callback(TOOL, monitoring.events.INSTRUCTION, self._step)
        monitoring.set_events(TOOL, monitoring.events.INSTRUCTION)
        try:
            yield
        finally:
            monitoring.set_events(TOOL, 0)
            monitoring.free_tool_id(TOOL)

    @contextmanager
    def _traced(self) -> Iterator[None]:
        def enter(frame: FrameType, _event: str, _argument: Any) -> Any:
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
            return trace

        def trace(frame: FrameType, event: str, _argument: Any) -> Any:
            if event == "opcode":
                self._step(frame, 0)
            return trace

        before = sys.gettrace()
        sys.settrace(enter)
        try:
            yield
        finally:
            sys.settrace(before)

    def _step(self, _where: object, _offset: int) -> None:
        if threading.get_ident() != self._thread:
            return
        self.instructions += 1
        if self.instructions > self._most:
            raise TooSlow(f"more than {self._most:,} instructions")


@cache
def _functions_that_remember() -> list[Any]:
    """Return each `Memo` and each function with `lru_cache` in all modules of the product that are loaded."""
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] in PRODUCT]
    values = [value for module in modules for value in vars(module).values()]
    return [each for each in values if isinstance(each, Memo) or hasattr(each, "cache_clear")]


def forget_results() -> None:
    """Forget what functions remember, so that a call does all its work."""
    for each in _functions_that_remember():
        if isinstance(each, Memo):
            each.__init__(each._function, each._budget)  # type: ignore[misc]
        else:
            each.cache_clear()


def seconds(call: Call, *, limit_s: float) -> float:
    """Return the CPU time of the call in seconds. Raise `TooSlow` if it needs more than the limit."""
    with _without_collection(), _stopped_after(limit_s):
        start = time.thread_time()
        call()
        return time.thread_time() - start


@contextmanager
def _without_collection() -> Iterator[None]:
    """Do not let a collection of garbage, which can call finalizers of any object, happen within the block."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def _stopped_after(limit_s: float) -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TooSlow(f"more than {limit_s:g} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    # `SIGVTALRM` counts the CPU time of the process. A regular expression looks for signals from time to time.
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
