"""One watch for each resource in the process. All readers share its cache, and handlers receive each change.

The contract, after client-go's SharedInformer:

- The cache is eventually consistent. For each object it shows a state that the server had, and never goes back to an
  earlier state. There is no promise about the order between two objects or two resources.
- Handlers are synchronous. They are called in the order in which they were added. For an event, they are called in the
  same iteration of the loop as the change of the cache. For a list, they are called soon afterwards: readers may see a
  list before the handlers have received all of it.
- A handler may read stores and add keys to queues. It must be quick. If a handler raises an exception, the exception is
  logged and counted, and the other handlers are called.
- A resync sends every object to the handlers again, as `Updated(obj, obj)`.
- `synced` is set after the first list was sent to every handler.
- If the server does not serve the resource, the informer waits for it. `missing` is True meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import random  # noqa: TID251 - spreads the watches of many clients; tests pass their own function
from typing import Generic, TypeVar

import structlog

from informers.client import ApiClient
from informers.instruments import NO_INSTRUMENTS, InformerInstruments
from informers.meta import KubeObject
from informers.reflector import Reflector
from informers.resource import Resource
from informers.store import ALL_NAMESPACES, Change, Indexes, Store, StoreView, Updated

log = structlog.get_logger()

T = TypeVar("T", bound=KubeObject)

RESYNC_SLICE = 250
"""A resync sends this many objects to the handlers before other tasks run."""

Handler = Callable[[Change[T]], None]


class SharedInformer(Generic[T]):
    """Cache and handlers for one resource; the docstring of this module is its contract.

    `namespaces=("",)` makes one watch for all namespaces. Other values make one watch for each namespace.

    `transform` may remove fields of each object before it is stored, but must keep the metadata.
    """

    def __init__(
        self,
        resource: Resource[T],
        client: ApiClient,
        *,
        namespaces: Iterable[str] = (ALL_NAMESPACES,),
        indexes: Indexes[T] | None = None,
        transform: Callable[[T], T] | None = None,
        resync_period_s: float = 0.0,
        instruments: InformerInstruments = NO_INSTRUMENTS,
        chance: Callable[[], float] = random,
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self._resync_period_s = resync_period_s
        self._instruments = instruments
        self._handlers: list[Handler[T]] = []
        scopes = tuple(dict.fromkeys(namespaces)) if resource.namespaced else (ALL_NAMESPACES,)
        if not scopes or (ALL_NAMESPACES in scopes and len(scopes) > 1):
            raise ValueError('namespaces must be ("",) for all namespaces, or one or more names')
        self._store: Store[T] = Store(indexes=indexes, scopes=scopes)
        self._reflectors = [
            Reflector(
                resource,
                client,
                self._store,
                scope=scope,
                transform=transform,
                emit=self._emit,
                completed=self._note_listed,
                instruments=instruments,
                chance=chance,
            )
            for scope in scopes
        ]

    @property
    def store(self) -> StoreView[T]:
        return self._store

    @property
    def missing(self) -> bool:
        """True while the informer waits because the server does not serve the resource."""
        return any(reflector.missing for reflector in self._reflectors)

    @property
    def waiting_for(self) -> str:
        """The reason why the informer does not receive changes now, as a phrase. "" if a watch is open."""
        return next((reflector.waiting_for for reflector in self._reflectors if reflector.waiting_for), "")

    def silent_s(self, now: float) -> float:
        """Seconds since data last arrived on the quietest watch. `now` is the loop's time."""
        return max(reflector.silent_s(now) for reflector in self._reflectors)

    def add_handler(self, handler: Handler[T]) -> None:
        """Add a handler. Call this before `run`: a later handler would not receive objects that are already cached."""
        self._handlers.append(handler)

    async def run(self) -> None:
        """List and watch the resource until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run(), name=f"informer-{self.resource.plural}-{reflector.scope}")
            if self._resync_period_s:
                group.create_task(self._resync(), name=f"informer-{self.resource.plural}-resync")

    def _emit(self, change: Change[T]) -> None:
        for handler in self._handlers:
            try:
                handler(change)
            except Exception:
                self._instruments.handler_failed(self.resource.name)
                log.exception("informer handler failed", resource=self.resource.name)

    def _note_listed(self) -> None:
        if all(reflector.listed for reflector in self._reflectors):
            self.synced.set()

    async def _resync(self) -> None:
        """Send every object to the handlers again, once in each resync period, as `Updated(obj, obj)`."""
        await self.synced.wait()
        while True:
            await asyncio.sleep(self._resync_period_s)
            for number, stale in enumerate(self._store.values(), 1):
                # Other tasks ran since `values()` was called: the object may have changed or be gone.
                obj = self._store.get(stale.metadata.key)
                if obj is not None:
                    self._emit(Updated(obj, obj))
                if not number % RESYNC_SLICE:
                    await asyncio.sleep(0)
