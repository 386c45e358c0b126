"""Samples the Python stack of the main thread, by the CPU time of the process.

The kernel sends SIGPROF after each INTERVAL_S of CPU time. So other programs on the machine do not change the profile.
Python runs the signal handler between two bytecodes. The time of a C function counts for the Python function that calls
the C function.
"""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

INTERVAL_S = 0.001
DEEPEST = 60
"""The largest number of functions of a sample. The outermost functions are left out."""


class Sampler:
    def __init__(self) -> None:
        self.is_running = False
        self._stacks: Counter[tuple[CodeType, ...]] = Counter()

    def start(self) -> None:
        self._stacks.clear()
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
        self.is_running = True

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        self.is_running = False

    def folded(self) -> str:
        """Return one line for each stack: the functions from outside to inside, and the number of samples."""
        lines: Counter[str] = Counter()
        for stack, count in self._stacks.items():
            lines[";".join(map(_name, reversed(stack)))] += count
        return "".join(f"{line} {count}\n" for line, count in sorted(lines.items()))

    def _sample(self, _: int, frame: FrameType | None) -> None:
        stack: list[CodeType] = []
        while frame is not None and len(stack) < DEEPEST:
            stack.append(frame.f_code)
            frame = frame.f_back
        self._stacks[tuple(stack)] += 1


def _name(code: CodeType) -> str:
    """Return `package/module.py:function` without spaces and semicolons, for example `informers/store.py:apply`."""
    path = Path(code.co_filename)
    return f"{path.parent.name}/{path.name}:{code.co_qualname}".replace(" ", "_").replace(";", "_")
