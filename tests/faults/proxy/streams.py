"""A watch through the fault proxy: events go from the server to the client, as the script decides.

The relay sends whole lines. Until a rule concerns the watch, the relay does not parse them.
"""

import asyncio
from collections import deque
from collections.abc import Callable

import aiohttp

from tests.faults.proxy import actions
from tests.faults.proxy.answers import EXPIRED, corrupted_event, error_event
from tests.faults.proxy.requests import ApiRequest, WatchEvent, parse_event
from tests.faults.proxy.rules import Script, Taken
from tests.faults.proxy.wire import END_OF_CHUNKS, Head, Wire, chunk

READ_WITHIN_S = 0.01
"""The pause before a reset, in seconds. In this time, the client reads the data that has arrived. A reset discards
unread data.
"""


class Ended(Exception):
    """The relay has ended the watch."""


class WatchRelay:
    """One open watch."""

    def __init__(
        self, wire: Wire, request: ApiRequest, script: Script, note: Callable[[ApiRequest, Taken], None]
    ) -> None:
        self._wire = wire
        self._request = request
        self._script = script
        self._note = note
        self._lines: deque[tuple[float, bytes]] = deque()
        self._over = self._broken = False
        self._woken = asyncio.Event()
        self._decided: set[int] = set()
        self._modes: dict[int, actions.Action] = {}
        self._omitting: dict[int, int] = {}

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
        now = asyncio.get_running_loop().time
        rest = b""
        broken = False
        try:
            async for data in answer.content.iter_any():
                *lines, rest = (rest + data).split(b"\n")
                self._lines.extend((now(), line + b"\n") for line in lines)
                self._woken.set()
        except (aiohttp.ClientError, ConnectionError):
            broken = True
        if rest:
            self._lines.append((now(), rest))
        self._over, self._broken = True, broken
        self._woken.set()

    async def _notice_the_end(self) -> None:
        await self._wire.gone.wait()
        self._woken.set()

    async def _relay(self) -> None:
        while self._wire.open:
            self._woken.clear()
            await self._act_on_stream()
            if (wait := self._waiting_time()) is None or wait > 0:
                await self._pause(wait)
            elif self._coalescing():
                await self._flush_coalesced()
            elif self._lines:
                await self._relay_line(self._lines.popleft()[1])
            elif self._over:
                await (self._break_off() if self._broken else self._complete())

    async def _act_on_stream(self) -> None:
        self._modes = {n: action for n, action in self._modes.items() if n in self._script.rules}
        while taken := self._script.on_stream(self._request, self._decided):
            self._note(self._request, taken)
            match taken.action:
                case actions.EndWatch(clean=clean):
                    await (self._complete() if clean else self._break_off())
                case actions.FailWatch() as failure:
                    await self._fail(failure)
                case _:
                    self._modes[taken.rule] = taken.action
        if any(number not in self._script.rules for number in self._omitting):
            await self._fail(EXPIRED)

    def _waiting_time(self) -> float | None:
        """Return the seconds until the next line may be sent. None means that a change must come first."""
        if any(isinstance(action, actions.HoldWatch) for action in self._modes.values()):
            return None
        if not self._lines:
            return 0 if self._over and not self._coalescing() else self._until_flush()
        if self._coalescing():
            return self._until_flush()
        lag = max(
            (action.seconds for action in self._modes.values() if isinstance(action, actions.LagWatch)), default=0.0
        )
        return max(0.0, self._lines[0][0] + lag - asyncio.get_running_loop().time()) if lag else 0

    def _coalescing(self) -> bool:
        return any(isinstance(action, actions.Coalesce) for action in self._modes.values())

    def _until_flush(self) -> float | None:
        if not self._coalescing():
            return None
        return max(0.0, self._flush_at - asyncio.get_running_loop().time())

    async def _pause(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _relay_line(self, line: bytes) -> None:
        if not self._script.watches_events(self._request):
            return await self._send(line)
        event = parse_event(line)
        if await self._omits(event):
            return
        taken = self._script.on_event(self._request, event)
        if taken is None:
            return await self._send(line)
        self._note(self._request, taken)
        match taken.action:
            case actions.CutWatch(at_byte=at):
                cut = line[: len(line) // 2 if at is None else at]
                await self._break_off(cut)
            case actions.RepeatEvent():
                await self._send(line + line)
            case actions.Corrupt(how=how):
                await self._wire.send(corrupted_event(line, how))
                self._wire.close()
                raise Ended
            case actions.OmitEvents(count=count):
                self._omitting[taken.rule] = count
                await self._omits(event)
            case actions.Coalesce(seconds=seconds):
                self._lines.appendleft((0.0, line))
                self._modes[taken.rule] = taken.action
                self._flush_at = asyncio.get_running_loop().time() + seconds

    async def _omits(self, event: WatchEvent) -> bool:
        """Return True if the event is dropped. After the last event to drop, the watch ends."""
        for number in self._omitting:
            if self._script.rules[number].match.covers_event(event):
                self._omitting[number] -= 1
                if self._omitting[number] <= 0:
                    await self._fail(EXPIRED)
                return True
        return False

    async def _flush_coalesced(self) -> None:
        self._modes = {n: action for n, action in self._modes.items() if not isinstance(action, actions.Coalesce)}
        lines = coalesced([line for _, line in self._lines])
        self._lines.clear()
        for line in lines:
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


def coalesced(lines: list[bytes]) -> list[bytes]:
    """Return only the last event of each object. The order of these events stays the same.

    An object that these events add and delete is left out.
    """
    first: dict[tuple[str, str, str], WatchEvent] = {}
    last: dict[tuple[str, str, str], tuple[WatchEvent, bytes]] = {}
    for line in lines:
        event = parse_event(line)
        meta = event.metadata
        key = (meta.namespace, meta.name, meta.uid)
        first.setdefault(key, event)
        last.pop(key, None)
        last[key] = event, line
    kept = []
    for key, (event, line) in last.items():
        was_new = first[key].type == "ADDED"
        if was_new and event.type == "DELETED":
            continue
        kept.append(line.replace(b'"type":"MODIFIED"', b'"type":"ADDED"', 1) if was_new else line)
    return kept
