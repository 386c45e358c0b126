"""Load that the replay server makes itself: changes of VMIs, and VMIs that disappear."""

from __future__ import annotations

import asyncio
import time
from random import Random

from benchmarks import fleet
from benchmarks.replay.objects import Size
from benchmarks.replay.server import Server

TICK_S = 0.01
CREATED_WITHIN_S = 30.0


class Load:
    def __init__(self, server: Server, size: Size, *, seed: int = 1) -> None:
        self._server = server
        self._size = size
        self._chance = Random(seed)
        self._vmis = server.state.collections[("kubevirt.io", "virtualmachineinstances")]
        self._keys = list(self._vmis.items)
        self.changes = 0
        self.reactions_ms: list[float] = []
        self.missed = 0

    async def churn(self, rate: float, seconds: float) -> None:
        """Change random VMIs at this rate. Each change has a new resourceVersion and nothing else."""
        loop = asyncio.get_running_loop()
        started, self.changes = loop.time(), 0
        while (elapsed_s := loop.time() - started) < seconds:
            while self.changes < elapsed_s * rate:
                key = self._chance.choice(self._keys)
                if key in self._vmis.items:
                    self._server.state.touch(self._vmis, key)
                self.changes += 1
            await asyncio.sleep(TICK_S)

    async def react(self, count: int, pause_s: float) -> None:
        """Delete VMIs of replica sets, and measure the time until the request that creates the next VMI arrives."""
        self.reactions_ms, self.missed = [], 0
        for number in self._chance.sample(range(self._size.set_vmis), min(count, self._size.set_vmis)):
            group = number // self._size.vmis_of_set
            key = (fleet.namespace_of(group), fleet.vmi_name(number, self._size.vmis_of_set))
            if key not in self._vmis.items:
                continue
            started = time.perf_counter()
            self._server.state.remove(self._vmis, key)
            try:
                arrived = await self._server.seen.next_create(fleet.uid(1, group), CREATED_WITHIN_S)
            except TimeoutError:
                self.missed += 1
            else:
                self.reactions_ms.append((arrived - started) * 1000)
            await asyncio.sleep(pause_s)

    def lose_one(self) -> None:
        """Delete the first VMI of the first replica set."""
        key = self._keys[0]
        if key in self._vmis.items:
            self._server.state.remove(self._vmis, key)
