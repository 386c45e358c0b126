"""A fault proxy in a separate thread, for synchronous tests that run the controller as a process.

with fault_proxy_in_thread(plane.url, plane.ca) as proxy:
    lost = proxy.add(Rule(Match("create", "virtualmachineinstances"), LoseAnswer(), times=None))
    run_the_controller(proxy.write_kubeconfig(path, token))
    proxy.decisions(lost)
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tests.faults.proxy.proxy import FaultProxy, fault_proxy
from tests.faults.proxy.rules import Rule

T = TypeVar("T")
WITHIN_S = 30.0


class ThreadedProxy:
    """The methods of a proxy, for callers outside its event loop. Each method returns when the change is in force."""

    def __init__(self, proxy: FaultProxy, loop: asyncio.AbstractEventLoop) -> None:
        self._proxy = proxy
        self._loop = loop

    def add(self, rule: Rule) -> int:
        return self.call(lambda proxy: proxy.add(rule))

    def remove(self, number: int) -> None:
        self.call(lambda proxy: proxy.remove(number))

    def decisions(self, rule: int) -> int:
        return self.call(lambda proxy: proxy.decisions(rule))

    def write_kubeconfig(self, path: Path, token: str) -> Path:
        return self.call(lambda proxy: proxy.write_kubeconfig(path, token))

    def call(self, do: Callable[[FaultProxy], T]) -> T:
        """In the proxy's event loop, call the function with the proxy as its argument. Return the result."""

        async def done() -> T:
            return do(self._proxy)

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(WITHIN_S)


@contextmanager
def fault_proxy_in_thread(url: str, ca: Path) -> Iterator[ThreadedProxy]:
    """Run a proxy in a thread while the block runs."""
    started: Future[tuple[ThreadedProxy, Callable[[], None]]] = Future()
    thread = threading.Thread(target=asyncio.run, args=(_serve(url, ca, started),), daemon=True)
    thread.start()
    proxy, stop = started.result(WITHIN_S)
    try:
        yield proxy
    finally:
        stop()
        thread.join(WITHIN_S)


async def _serve(url: str, ca: Path, started: Future[tuple[ThreadedProxy, Callable[[], None]]]) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    try:
        async with fault_proxy(url, ca) as proxy:
            started.set_result((ThreadedProxy(proxy, loop), lambda: loop.call_soon_threadsafe(stopped.set)))
            await stopped.wait()
    except BaseException as error:
        if not started.done():
            started.set_exception(error)
        raise
