"""The history of a set: its templates as ControllerRevisions, as the cache shows them (R17)."""

from collections.abc import Callable, Container, Iterable, Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct

from controller.apimachinery.indexes import OWNER_UID, NamesInUse, by_owner_uid, owned_by
from controller.kubevirt.vm_types import ControllerRevision
from controller.replicas.revisions import former_set_of, hash_of_set_revision, revision_base
from informers.meta import ObjectKey, ObjectMeta
from informers.store import StoreView

FORMER_SET: Final = "former-set"


def by_former_set(revision: ControllerRevision) -> Iterable[str]:
    """An index function. If no controller owns the revision, return the key of `former_set_of` as text."""
    return map(str, former_set_of(revision))


REVISION_INDEXES: Final[Mapping[str, Callable[[ControllerRevision], Iterable[str]]]] = {
    OWNER_UID: by_owner_uid,
    FORMER_SET: by_former_set,
}


class History(Struct, frozen=True, kw_only=True):
    """The revisions of one set. No owner controls those `orphaned` by an earlier set of the same name.

    `names` are those in use in the namespace. `keep` is the number of unused revisions to keep. `since` is the time of
    the first reconciliation of any set after the start.
    """

    revisions: tuple[ControllerRevision, ...]
    orphaned: tuple[ControllerRevision, ...]
    names: Container[str]
    keep: int
    since: datetime


class RevisionCache:
    """Reads the histories of sets from the cache, and remembers the time of the first read."""

    def __init__(self, revisions: StoreView[ControllerRevision], keep: int) -> None:
        self._revisions = revisions
        self._keep = keep
        self._since: datetime | None = None

    def history_of(self, owner: ObjectMeta, now: datetime) -> History:
        if self._since is None:
            self._since = now
        owned = owned_by(owner, self._revisions)
        return History(
            revisions=tuple(each for each in owned if hash_of_set_revision(each.metadata)),
            orphaned=self.orphaned(owner.key),
            names=NamesInUse(self._revisions, owner.namespace),
            keep=self._keep,
            since=self._since,
        )

    def orphaned(self, key: ObjectKey) -> tuple[ControllerRevision, ...]:
        """Return the revisions of a former set with this key, which no owner controls."""
        former = ObjectKey(key.namespace, revision_base(key.name))
        return tuple(self._revisions.by_index(FORMER_SET, str(former)))
