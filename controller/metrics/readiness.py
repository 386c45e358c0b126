"""Measures the time from the creation of a VM or VMI until it is ready for the first time.

A `ReadyTimer` remembers each member that was never ready, and forgets it at the change to ready. So each counts at most
once. The times come from the object, so a late change is right too. After a restart, a member that may have been ready
before does not count. A change that the watch missed counts only if the cache contained the member before.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Generic, TypeVar

from controller.apimachinery.conditions import with_timezone
from informers.meta import KubeObject, ObjectKey, ObjectMeta, controller_of
from informers.store import Added, Change, Removed, StoreView

T = TypeVar("T", bound=KubeObject)


class ReadyTimer(Generic[T]):
    """Measures the members of one kind. Call `handle` on the event loop.

    `is_new` is true for a member that was never ready. `ready_at` returns when it became ready, or None. `observe` gets
    seconds.
    """

    def __init__(
        self,
        kind: str,
        owners: StoreView[KubeObject],
        is_new: Callable[[T], bool],
        ready_at: Callable[[T], datetime | None],
        observe: Callable[[float], None],
    ) -> None:
        self._kind = kind
        self._owners = owners
        self._is_new = is_new
        self._ready_at = ready_at
        self._observe = observe
        self._waiting: set[str] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def handle(self, change: Change[T]) -> None:
        if isinstance(change, Removed):
            self._waiting.discard(change.last_known.metadata.uid)
        elif isinstance(change, Added):
            owner = controller_of(change.new.metadata)
            if owner is not None and owner.kind == self._kind and self._is_new(change.new):
                self._waiting.add(change.new.metadata.uid)
        elif change.new.metadata.uid in self._waiting:
            self._look(change.new)

    def _look(self, member: T) -> None:
        meta = member.metadata
        ready_at, created_at = self._ready_at(member), with_timezone(meta.creation_timestamp)
        if ready_at is None or created_at is None:
            return
        self._waiting.discard(meta.uid)
        if self._is_owned(meta):
            # The clock of the node may be behind the clock of the API server.
            self._observe(max((ready_at - created_at).total_seconds(), 0.0))

    def _is_owned(self, meta: ObjectMeta) -> bool:
        """Return True if the member's controller is in the cache. The cache has the owners of one API group."""
        reference = controller_of(meta)
        if reference is None or reference.kind != self._kind:
            return False
        owner = self._owners.get(ObjectKey(meta.namespace, reference.name))
        return owner is not None and owner.metadata.uid == reference.uid
