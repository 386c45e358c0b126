"""Indexes that find cached objects by owner or namespace, and a type for the names of the objects in a namespace."""

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from informers.meta import KubeObject, ObjectKey, controller_of
from informers.store import StoreView

OWNER_UID: Final = "owner-uid"
NAMESPACE: Final = "namespace"
"""The index that each cache needs whose objects a plan deletes (`FirstDeletes`)."""


def by_owner_uid(thing: KubeObject) -> Iterable[str]:
    owner = controller_of(thing.metadata)
    return () if owner is None else (owner.uid,)


def by_namespace(thing: KubeObject) -> Iterable[str]:
    return (thing.metadata.namespace,)


class NamesInUse(Struct, frozen=True):
    """The names of all objects of a kind in a namespace, with any owner or none.

    `name in names` is True if an object has this name.
    """

    objects: StoreView[Any]
    namespace: str

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.objects.get(ObjectKey(self.namespace, name)) is not None
