"""A controller in this process, behind its fault proxy. After a crash, a new controller starts."""

import asyncio
import io
import math
from contextlib import suppress
from typing import Any

from controller.app import serve
from tests.faults.proxy.actions import Mark
from tests.faults.proxy.proxy import Decision, FaultProxy
from tests.faults.proxy.requests import ApiRequest
from tests.faults.proxy.rules import Rule
from tests.faults.samples.bench import Bench
from tests.faults.samples.view import Refused, User

STOPPED_WITHIN_S = 30.0


class Herd:
    """The controller of one run, in one namespace."""

    def __init__(self, bench: Bench, namespace: str) -> None:
        self.crashes = 0
        self.ended: list[str] = []
        """The errors of controllers that ended by themselves."""

        self._bench = bench
        self._namespace = namespace
        self._proxies: list[FaultProxy] = []
        self._marked: list[tuple[ApiRequest, Mark]] = []
        self._armed_at = 0
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._restarting: asyncio.Task[None] | None = None

    @property
    def proxy(self) -> FaultProxy:
        return self._proxies[-1]

    @property
    def fired(self) -> list[Decision]:
        """The occasions on which a rule acted."""
        return [each for each in self.decisions() if each.rule]

    async def start(self) -> None:
        proxy = FaultProxy(self._bench.upstream, tls=False)
        proxy.on_crash = self._crashed
        proxy.on_mark = self._mark
        self._proxies.append(proxy)
        await proxy.start()
        name = f"{self._namespace}-{len(self._proxies)}.kubeconfig"
        kubeconfig = proxy.write_kubeconfig(self._bench.directory / name, self._bench.token)
        config = self._bench.config_for(self._namespace, kubeconfig)
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(serve(config, self._stop), name=f"controller-{self._namespace}")
        self._task.add_done_callback(self._note_end)

    def works_since(self) -> float:
        """The time of the first watch of the present controller, or infinity. Without caches, it is not at rest."""
        watches = (each.time for each in self.proxy.log if each.request.watch)
        return min(watches, default=math.inf) if len(self._proxies) > self.crashes else math.inf

    def arm(self, *rules: Rule) -> tuple[int, ...]:
        """Let the faults begin. Writes are counted from now on."""
        self._armed_at = len(self.proxy.log)
        return tuple(self.proxy.add(rule) for rule in rules)

    async def disarm(self, numbers: tuple[int, ...]) -> None:
        """Remove these rules, and the marks that they have set."""
        for number in numbers:
            self._proxies[0].remove(number)
        while self._marked:
            request, mark = self._marked.pop()
            with suppress(Refused):  # the object is gone
                await self._set_mark(request, mark, None)

    async def _mark(self, request: ApiRequest, mark: Mark) -> None:
        self._marked.append((request, mark))
        await self._set_mark(request, mark, mark.value)

    async def _set_mark(self, request: ApiRequest, mark: Mark, value: str | None) -> None:
        change = {"status": {"snapshotInProgress": value}} if mark.snapshot else None
        change = change or {"metadata": {"annotations": {mark.annotation: value}}}
        user = User(self._bench.view, self._namespace)
        await user.patch(request.resource, request.name, change, subresource="status" if mark.snapshot else "")

    def requests(self) -> int:
        """The number of requests, except watches and lists: these belong to the caches."""
        return sum(each.verb not in ("watch", "list") for proxy in self._proxies for each in proxy.log)

    def decisions(self) -> list[Decision]:
        """The log of all proxies since `arm`."""
        logs = [proxy.log for proxy in self._proxies]
        return [each for number, log in enumerate(logs) for each in log[0 if number else self._armed_at :]]

    async def stop(self) -> None:
        """Stop the controller as SIGTERM does. If a crash has begun, wait until the next controller runs."""
        if self._restarting is not None:
            await self._restarting
        if self._stop.is_set():
            return
        self._stop.set()
        if self._task is not None:
            _, late = await asyncio.wait([self._task], timeout=STOPPED_WITHIN_S)
            for task in late:
                self.ended.append(f"the controller did not stop within {STOPPED_WITHIN_S:g} s: {_stack_of(task)}")
                await self._cancelled(task)
        for proxy in self._proxies:
            await proxy.close()

    def _crashed(self) -> None:
        self.crashes += 1
        self._restarting = asyncio.create_task(self._replace(), name=f"crash-{self._namespace}")

    async def _replace(self) -> None:
        if self._task is not None:
            self._task.remove_done_callback(self._note_end)
            await self._cancelled(self._task)
        await self.start()

    async def _cancelled(self, task: asyncio.Task[Any]) -> None:
        task.cancel()
        _, late = await asyncio.wait([task], timeout=STOPPED_WITHIN_S)
        if late:
            self.ended.append(f"the cancelled controller still runs: {_stack_of(task)}")

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (self._stop.is_set() and task.exception() is None):
            return
        self.ended.append(repr(task.exception()))


def _stack_of(task: asyncio.Task[Any]) -> str:
    """Return where a task waits."""
    text = io.StringIO()
    task.print_stack(file=text)
    return text.getvalue()
