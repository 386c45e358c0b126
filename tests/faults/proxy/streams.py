"""A watch through the fault proxy: events go from the server to the client, as the script decides.

The relay sends whole lines.
"""

import asyncio
from collections import deque

import aiohttp

from tests.faults.proxy import actions
from tests.faults.proxy.answers import EXPIRED, corrupted_event, error_event
from tests.faults.proxy.rules import ApiRequest, Script
from tests.faults.proxy.wire import END_OF_CHUNKS, Head, Wire, chunk

BOOKMARK = b'{"type":"BOOKMARK"'
"""The begin of a line that is no event of an object."""

READ_WITHIN_S = 0.01
"""The pause before a reset, in seconds. In this time, the client reads the data that has arrived. A reset discards
unread data.
"""


class Ended(Exception):
    """The relay has ended the watch."""


class WatchRelay:
    def __init__(self, wire: Wire, request: ApiRequest, script: Script) -> None:
        self._wire = wire
        self._request = request
        self._script = script
        self._lines: deque[bytes] = deque()
        self._over = self._broken = False
        self._woken = asyncio.Event()
        self._decided: set[int] = set()
        self._held_by: set[int] = set()

    def wake(self) -> None:
        """Look at the rules again: one was added or removed."""
        self._woken.set()

    async def run(self, head: Head, answer: aiohttp.ClientResponse) -> None:
        """Relay the watch until the server, the client or a rule ends it."""
        await self._wire.send(head.encode(chunked=True))
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(self._read(answer))
            leaving = group.create_task(self._notice_the_end())
            try:
                await self._relay()
            except Ended:
                pass
            finally:
                reading.cancel()
                leaving.cancel()

    async def _read(self, answer: aiohttp.ClientResponse) -> None:
        rest = b""
        broken = False
        try:
            async for data in answer.content.iter_any():
                *lines, rest = (rest + data).split(b"\n")
                self._lines.extend(line + b"\n" for line in lines)
                self._woken.set()
        except (aiohttp.ClientError, ConnectionError):
            broken = True
        if rest:
            self._lines.append(rest)
        self._over, self._broken = True, broken
        self._woken.set()

    async def _notice_the_end(self) -> None:
        await self._wire.gone.wait()
        self._woken.set()

    async def _relay(self) -> None:
        while self._wire.open:
            self._woken.clear()
            await self._act_on_stream()
            if self._held_by:
                await self._woken.wait()
            elif self._lines:
                await self._relay_line(self._lines.popleft())
            elif self._over:
                await (self._break_off() if self._broken else self._complete())
            else:
                await self._woken.wait()

    async def _act_on_stream(self) -> None:
        self._held_by &= self._script.rules.keys()
        while taken := self._script.decide(self._request, actions.OnStream, but=self._decided):
            number, action = taken
            self._decided.add(number)
            match action:
                case actions.EndWatch(clean=clean):
                    await (self._complete() if clean else self._break_off())
                case actions.FailWatch() as failure:
                    await self._fail(failure)
                case _:
                    self._held_by.add(number)

    async def _relay_line(self, line: bytes) -> None:
        taken = None if line.startswith(BOOKMARK) else self._script.decide(self._request, actions.OnEvent)
        match taken[1] if taken else None:
            case actions.CutWatch(at_byte=at):
                cut = line[: len(line) // 2 if at is None else at]
                await self._break_off(cut)
            case actions.RepeatEvent():
                await self._send(line + line)
            case actions.Corrupt(how=how):
                await self._wire.send(corrupted_event(line, how))
                self._wire.close()
                raise Ended
            case actions.OmitEvent():
                await self._fail(EXPIRED)
            case _:
                await self._send(line)

    async def _send(self, line: bytes) -> None:
        await self._wire.send(chunk(line))

    async def _fail(self, failure: actions.FailWatch) -> None:
        await self._send(error_event(failure))
        await self._complete()

    async def _complete(self) -> None:
        """End the watch with a complete answer. The client can use the connection again."""
        await self._wire.send(END_OF_CHUNKS)
        raise Ended

    async def _break_off(self, data: bytes = b"") -> None:
        """Send the last data and reset the connection."""
        if data:
            await self._wire.send(chunk(data))
        await asyncio.sleep(READ_WITHIN_S)
        self._wire.reset()
        raise Ended
