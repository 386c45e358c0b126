"""Limits the number of concurrent requests. Each running request uses one slot, and flows share the slots fairly.

A flow is a pair of a group, such as a namespace, and a key, such as an object, in the context variable `FLOW`. Groups
get free slots in turn, and so do the keys of a group. One key can use at most four fifths of the slots, and one group
nine tenths, so slow requests of one never use all. Tasks without a flow can use all slots.
"""

import asyncio
from collections import Counter, deque
from contextvars import ContextVar
from typing import Final, TypeAlias

Flow: TypeAlias = tuple[str, str]

NO_FLOW: Final[Flow] = ("", "")

FLOW: Final[ContextVar[Flow]] = ContextVar("flow", default=NO_FLOW)
Keys: TypeAlias = dict[str, deque[asyncio.Future[None]]]


class FairSlots:
    """A semaphore with `size` slots that are shared fairly between flows. Use it as an `async with` block."""

    def __init__(self, size: int) -> None:
        self.size = self._free = size
        self.waiting = 0
        """The number of requests that wait."""
        self._waited_s = 0.0
        self._waited_since = 0.0
        self._held_by_key: Counter[Flow] = Counter()
        self._held_by_group: Counter[str] = Counter()
        self._turns: dict[str, Keys] = {}

    @property
    def running(self) -> int:
        return self.size - self._free

    def waited_s(self) -> float:
        """Return the total time during which at least one request waited, in seconds. Call it on the event loop."""
        open_s = asyncio.get_running_loop().time() - self._waited_since if self.waiting else 0.0
        return self._waited_s + open_s

    async def __aenter__(self) -> None:
        group, key = flow = FLOW.get()
        if self._free > 0 and self._group_has_room(group) and self._key_has_room(flow):
            self._take(flow)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.setdefault(group, {}).setdefault(key, deque()).append(turn)
        if not self.waiting:
            self._waited_since = asyncio.get_running_loop().time()
        self.waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back(flow)
            raise
        finally:
            self.waiting -= 1
            if not self.waiting:
                self._waited_s += asyncio.get_running_loop().time() - self._waited_since

    async def __aexit__(self, *_: object) -> None:
        self._give_back(FLOW.get())

    def _group_has_room(self, group: str) -> bool:
        return not group or self._held_by_group[group] < max(self.size * 9 // 10, 1)

    def _key_has_room(self, flow: Flow) -> bool:
        return flow == NO_FLOW or self._held_by_key[flow] < max(self.size * 4 // 5, 1)

    def _take(self, flow: Flow) -> None:
        self._free -= 1
        self._held_by_key[flow] += 1
        self._held_by_group[flow[0]] += 1

    def _give_back(self, flow: Flow) -> None:
        self._free += 1
        self._held_by_key[flow] -= 1
        self._held_by_group[flow[0]] -= 1
        if not self._held_by_key[flow]:
            del self._held_by_key[flow]
        if not self._held_by_group[flow[0]]:
            del self._held_by_group[flow[0]]
        self._grant()

    def _grant(self) -> None:
        while (flow := self._next_flow()) is not None:
            group, key = flow
            # Remove the group and the key, and insert them again at the end. So the others have their turn first.
            keys = self._turns.pop(group)
            turns = keys.pop(key)
            turn = turns.popleft()
            if turns:
                keys[key] = turns
            if keys:
                self._turns[group] = keys
            if not turn.done():
                self._take(flow)
                turn.set_result(None)

    def _next_flow(self) -> Flow | None:
        if self._free <= 0:
            return None
        for group, keys in self._turns.items():
            if self._group_has_room(group):
                for key in keys:
                    if self._key_has_room((group, key)):
                        return group, key
        return None
