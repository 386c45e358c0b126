"""Samples the Python stack of the main thread, by the CPU time of the process.

The kernel sends SIGPROF after each INTERVAL_S of CPU time. So other programs on the machine do not change the profile.
Python runs the signal handler between two bytecodes. The time of a C function counts for the Python function that calls
the C function.

py-spy was tried in the place of this module. It samples by wall time: a function that slept was on top of half of the
samples. With `--gil`, it leaves out C functions that release the lock, such as a hash with a third of the CPU time.
"""

import signal
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

INTERVAL_S = 0.001
ROOT = Path(__file__).resolve().parents[2]
OWN = (ROOT / "controller", ROOT / "informers")
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
            lines[";".join(map(name_of, reversed(stack)))] += count
        return "".join(f"{line} {count}\n" for line, count in sorted(lines.items()))

    def _sample(self, _: int, frame: FrameType | None) -> None:
        stack: list[CodeType] = []
        while frame is not None and len(stack) < DEEPEST:
            stack.append(frame.f_code)
            frame = frame.f_back
        self._stacks[tuple(stack)] += 1


def name_of(code: CodeType) -> str:
    """Return `folder/module.py:function` without spaces and semicolons, for example `asyncio/events.py:Handle._run`.

    The name of a function of vmherd has all folders: `controller/runtime/execute/executor.py:Executor._create`.
    """
    path = Path(code.co_filename)
    own = any(path.is_relative_to(folder) for folder in OWN)
    name = path.relative_to(ROOT) if own else f"{path.parent.name}/{path.name}"
    return f"{name}:{code.co_qualname}".replace(" ", "_").replace(";", "_")
