"""A cache of the fake API server's objects. A test decides when the cache receives each event."""

from collections.abc import Callable
from typing import Generic, TypeVar

from informers.meta import KubeObject
from informers.resource import Resource
from informers.store import Change, Indexes, Store
from tests.fakes import stores
from tests.fakes.apiserver import Event, FakeApiServer

T = TypeVar("T", bound=KubeObject)


class LaggingCache(Generic[T]):
    """A real store of one resource. `handler` is called for each change."""

    def __init__(
        self,
        server: FakeApiServer,
        resource: Resource[T],
        *,
        indexes: Indexes[T] | None = None,
        handler: Callable[[Change[T]], None] = lambda change: None,
    ) -> None:
        self._server = server
        self.resource = resource
        self._handler = handler
        self._scanned = 0
        """The index of the first event that the cache has not looked at."""

        self.store: Store[T] = Store(indexes=indexes)
        self.relist()

    def catch_up(self, events: int | None = None) -> None:
        """Receive the next `events` events. Without a number, receive all events."""
        while self._scanned < len(self._server.events):
            event = self._server.events[self._scanned]
            if event.resource is self.resource:
                if events == 0:
                    return
                events = None if events is None else events - 1
                self._hear(event)
            self._scanned += 1

    def lose_event(self) -> None:
        """Skip the next event of this resource, as a broken watch does. The version of the store does not show this."""
        while self._scanned < len(self._server.events):
            event = self._server.events[self._scanned]
            self._scanned += 1
            if event.resource is self.resource:
                self.store.advance(str(event.version))
                return

    def relist(self) -> None:
        """Replace the contents by a new list."""
        self._scanned = len(self._server.events)
        self._report(stores.replace(self.store, self._server.objects(self.resource), str(self._server.version)))

    def _hear(self, event: Event) -> None:
        obj = self.resource.decode(event.body)
        self._report(self.store.remove(obj.metadata, obj) if event.deleted else self.store.apply(obj))

    def _report(self, changes: tuple[Change[T], ...]) -> None:
        for change in changes:
            self._handler(change)
