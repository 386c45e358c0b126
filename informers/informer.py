"""An informer watches one resource, stores its objects in a cache, and calls handlers with each change.

All readers can share the cache. The sections "Shared informer" and "Failures and their effects" of docs/informers.md
list its promises. They are those of client-go's SharedInformer.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from random import random  # noqa: TID251 - spreads the watches of many clients; tests pass their own function
from typing import Generic, TypeVar

import structlog

from informers.http.client import ApiClient
from informers.instruments import NO_INSTRUMENTS, Instruments
from informers.meta import KubeObject
from informers.resource import Resource
from informers.store import ALL_NAMESPACES, Change, Indexes, Store, StoreView
from informers.watch.reflector import Reflector

log = structlog.get_logger()

T = TypeVar("T", bound=KubeObject)

Handler = Callable[[Change[T]], None]


class SharedInformer(Generic[T]):
    """An informer for one resource, with one watch for each namespace, or one for all with `namespaces=("",)`.

    `transform` is called with each object before it is stored, and returns the object to store. It may remove fields of
    the object, but must keep its name, namespace, UID and resourceVersion. If it returns None, the store does not
    contain the object, and no earlier state of it.
    """

    def __init__(
        self,
        resource: Resource[T],
        client: ApiClient,
        *,
        namespaces: Iterable[str] = (ALL_NAMESPACES,),
        indexes: Indexes[T] | None = None,
        transform: Callable[[T], T | None] | None = None,
        instruments: Instruments = NO_INSTRUMENTS,
        chance: Callable[[], float] = random,
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
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
        """The reason why a watch is not open now, as a text for users. The text is "" if no watch has failed."""
        return next((reflector.waiting_for for reflector in self._reflectors if reflector.waiting_for), "")

    @property
    def seen(self) -> Mapping[str, str]:
        """The last resourceVersion whose changes all handlers have received, or "", by the URL path of the watch."""
        return {reflector.path: reflector.seen for reflector in self._reflectors}

    def silent_s(self, now: float) -> float:
        """Return the seconds since data last arrived, of the most silent watch. `now` is the time of the event loop."""
        return max(reflector.silent_s(now) for reflector in self._reflectors)

    def add_handler(self, handler: Handler[T]) -> None:
        """Add a handler before `run`: a later one would not receive the objects of the existing cache."""
        self._handlers.append(handler)

    def relist(self, why: str, *, namespace: str = ALL_NAMESPACES, restored: bool = False) -> None:
        """List the resource again, because the cache contradicts the server. `why` describes the contradiction.

        The new list replaces the cached objects, even newer ones. The contradiction concerns an object in `namespace`.
        `restored` is True if the server was restored from a backup. Then all namespaces are listed, and
        `StoreView.rewinds` increases. A list is expensive, so the caller must limit the frequency of its calls.
        """
        for reflector in self._reflectors:
            if restored or reflector.scope in (ALL_NAMESPACES, namespace):
                reflector.relist(why, restored=restored)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run(), name=f"informer-{self.resource.plural}-{reflector.scope}")

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
