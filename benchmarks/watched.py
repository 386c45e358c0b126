"""`vmherd run` with a measurement of the event loop: `python -m benchmarks.watched FILE run --kubeconfig ...`.

SIGUSR1 writes the longest stall of the event loop to FILE, and starts again from zero.
"""

import asyncio
import json
import signal
import sys
import time
from pathlib import Path

from controller import app
from controller.cli import main as vmherd
from controller.config.settings import Config

TICK_S = 0.005
KEPT = 30


class Stalls:
    """The longest turn of the event loop, in wall time and in CPU time of its thread, at most TICK_S too long."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._wall_s = 0.0
        self._longest: list[tuple[float, float]] = []
        """The CPU time of the longest turns in seconds, and their ends on the monotonic clock of the machine."""

    async def run(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._write)
        wall, cpu = time.monotonic(), time.thread_time()
        while True:
            await asyncio.sleep(TICK_S)
            now, cpu_now = time.monotonic(), time.thread_time()
            self._wall_s = max(self._wall_s, now - wall - TICK_S)
            self._longest = sorted([*self._longest, (cpu_now - cpu, now)])[-KEPT:]
            wall, cpu = now, cpu_now

    def _write(self) -> None:
        longest = [{"cpu_ms": cpu_s * 1000, "at": at} for cpu_s, at in reversed(self._longest)]
        unfinished = self._file.with_suffix(".new")
        unfinished.write_text(json.dumps({"wall_ms": self._wall_s * 1000, "longest": longest}))
        unfinished.rename(self._file)
        self._wall_s, self._longest = 0.0, []


def main() -> None:
    _, file, *sys.argv[1:] = sys.argv
    stalls, run = Stalls(Path(file)), app.run

    async def watched(config: Config) -> int:
        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(stalls.run())
            try:
                return await run(config)
            finally:
                ticking.cancel()

    app.run = watched
    vmherd()


if __name__ == "__main__":
    main()
