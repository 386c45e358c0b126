"""Load that the replay server makes itself: changes of VMIs, and VMIs that disappear. Clients start and read it."""

import asyncio
import time
from collections.abc import Coroutine, Mapping
from random import Random
from typing import Any

from benchmarks import fleet
from benchmarks.fleet import Size
from benchmarks.replay.server import Server

TICK_S = 0.01
CREATED_WITHIN_S = 30.0


class Load:
    def __init__(self, server: Server, size: Size, *, seed: int = 1) -> None:
        self._server = server
        self._size = size
        self._chance = Random(seed)
        self._vmis = server.store.collections["kubevirt.io", "virtualmachineinstances"]
        self._keys = list(self._vmis.items)
        self._running: set[asyncio.Task[None]] = set()
        self._changes = 0
        self._reactions_ms: list[float] = []
        self._missed = 0

    def control(self, what: str, params: Mapping[str, str]) -> Any:
        """Do what a client asks for, and return the answer. Raises KeyError for an unknown request."""
        numbers = {name: float(value) for name, value in params.items()}
        match what:
            case "begin":
                return self._server.seen.begin(int(numbers.get("pid", 0)))
            case "report":
                return self._server.seen.report()
            case "churn":
                return self._start(self._churn(numbers["rate"], numbers["seconds"]))
            case "react":
                return self._start(self._react(int(numbers["count"]), numbers["pause"]))
            case "lose-one":
                return self._server.store.remove(self._vmis, next(iter(self._vmis.items)))
            case "load":
                counts = {"running": len(self._running), "changes": self._changes, "missed": self._missed}
                return counts | {"reactions_ms": self._reactions_ms}
        raise KeyError(what)

    def _start(self, load: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(load)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _churn(self, rate: float, seconds: float) -> None:
        """Change random VMIs at this rate. Each change has a new resourceVersion and nothing else."""
        loop = asyncio.get_running_loop()
        started, self._changes = loop.time(), 0
        while (elapsed_s := loop.time() - started) < seconds:
            while self._changes < elapsed_s * rate:
                key = self._chance.choice(self._keys)
                if key in self._vmis.items:
                    self._server.store.touch(self._vmis, key)
                self._changes += 1
            await asyncio.sleep(TICK_S)

    async def _react(self, count: int, pause_s: float) -> None:
        """Delete VMIs of replica sets, and measure the time until the request that creates the next VMI arrives."""
        self._reactions_ms, self._missed = [], 0
        for number in self._chance.sample(range(self._size.set_vmis), min(count, self._size.set_vmis)):
            key = self._keys[number]
            if key not in self._vmis.items:
                continue
            started = time.perf_counter()
            self._server.store.remove(self._vmis, key)
            try:
                owner = fleet.uid(1, number // self._size.vmis_of_set)
                arrived = await self._server.seen.next_create(owner, CREATED_WITHIN_S)
            except TimeoutError:
                self._missed += 1
            else:
                self._reactions_ms.append((arrived - started) * 1000)
            await asyncio.sleep(pause_s)
