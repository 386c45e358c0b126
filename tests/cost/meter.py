"""Counts what a call costs: the executed instructions of Python, and the CPU time of its thread.

The count of instructions does not depend on the machine. It does not see the work of C code, such as `list.index` or a
regular expression. So C code is measured by time, on larger inputs and with a generous limit.
"""

import gc
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

Call = Callable[[], object]


class TooSlow(Exception):
    """A call took longer than its limit, and was stopped."""


class Meter:
    """The number of executed instructions, and the code objects that ran. `most` stops a call that needs more."""

    def __init__(self, most: int) -> None:
        self.instructions = 0
        self.codes: set[CodeType] = set()
        self._most = most

    def count(self, call: Call) -> int:
        before, self.instructions = sys.gettrace(), 0
        sys.settrace(self._enter)
        try:
            call()
        finally:
            sys.settrace(before)
        return self.instructions

    def _enter(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        self.codes.add(frame.f_code)
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._step

    def _step(self, _frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "opcode":
            self.instructions += 1
            if self.instructions > self._most:
                raise TooSlow(f"more than {self._most:,} instructions")
        return self._step


def seconds(call: Call, *, limit_s: float) -> float:
    """Return the CPU time of the call in seconds. Raise `TooSlow` if it needs more than the limit."""
    collects = gc.isenabled()
    gc.disable()
    try:
        with _stopped_after(limit_s):
            start = time.thread_time()
            call()
            return time.thread_time() - start
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
