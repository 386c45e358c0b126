"""One watch per resource for the whole process: a cache that everybody reads, and handlers that hear of each change.

The contract, after client-go's SharedInformer:

- The cache is eventually consistent. It shows, for each object, a state that the server had, and never goes back from
  a later one to an earlier one. Between objects, and between resources, nothing is promised.
- Handlers are synchronous, are called in the order in which they were added, in the same turn of the loop as the change
  was made to the cache, or, for a list, soon afterwards: readers may see a list before handlers have heard all of it.
  They may read stores and fill queues; they must be quick. One that raises is logged and counted, and stops nobody.
- A resync hands every object on again as `Updated(obj, obj)`, for handlers that want to be reminded.
- `synced` is set once the first list has been handed to every handler.
- A resource that does not exist yet is waited for, and picked up when it appears: `missing` says so meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import random  # noqa: TID251 - spreads the watches of many clients; tests hand in their own
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

RESYNCED_AT_ONCE = 250
"""Objects that are handed on again before the loop gets a turn."""

Handler = Callable[[Change[T]], None]


class SharedInformer(Generic[T]):
    """See the module's contract. `namespaces=("",)` is one watch over all of them, otherwise there is one for each.

    `transform` may shrink each object before it is stored; it keeps the metadata.
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
            raise ValueError("an informer watches all namespaces, or each of those that are named")
        self._store: Store[T] = Store(indexes=indexes, scopes=scopes)
        self._followers = [
            Reflector(
                resource,
                client,
                self._store,
                scope=scope,
                transform=transform,
                hand_on=self._hand_on,
                completed=self._note_list,
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
        """Whether the server does not know the resource, as far as it was asked."""
        return any(follower.missing for follower in self._followers)

    @property
    def waiting_for(self) -> str:
        """What keeps the informer from following, in a phrase; "" while it follows."""
        return next((follower.waiting_for for follower in self._followers if follower.waiting_for), "")

    def silent_s(self, now: float) -> float:
        """How long ago something last arrived, on the quietest watch, by the loop's clock."""
        return max(follower.silent_s(now) for follower in self._followers)

    def add_handler(self, handler: Handler[T]) -> None:
        """To be called before `run`: a late handler would not hear of what is in the cache already."""
        self._handlers.append(handler)

    async def run(self) -> None:
        """Follow the resource, for ever."""
        async with asyncio.TaskGroup() as group:
            for follower in self._followers:
                group.create_task(follower.run(), name=f"informer-{self.resource.plural}-{follower.scope}")
            if self._resync_period_s:
                group.create_task(self._resync(), name=f"informer-{self.resource.plural}-resync")

    def _hand_on(self, change: Change[T]) -> None:
        for handler in self._handlers:
            try:
                handler(change)
            except Exception:
                self._instruments.handler_failed(self.resource.name)
                log.exception("informer handler failed", resource=self.resource.name)

    def _note_list(self) -> None:
        if all(follower.listed for follower in self._followers):
            self.synced.set()

    async def _resync(self) -> None:
        """Hand every object on again, now and then, as an update from itself to itself."""
        await self.synced.wait()
        while True:
            await asyncio.sleep(self._resync_period_s)
            for number, stale in enumerate(self._store.values(), 1):
                # The loop turned since the row was made: what is in it may have changed, or gone.
                obj = self._store.get(stale.metadata.key)
                if obj is not None:
                    self._hand_on(Updated(obj, obj))
                if not number % RESYNCED_AT_ONCE:
                    await asyncio.sleep(0)
