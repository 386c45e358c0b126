"""Indexes that find cached objects by owner or namespace, and a type for the names of the objects in a namespace."""

from collections.abc import Container, Iterable
from typing import Final, TypeVar

from msgspec import Struct

from informers.meta import KubeObject, ObjectKey, ObjectMeta, controller_of
from informers.store import StoreView

T = TypeVar("T", bound=KubeObject)

UID: Final = "uid"
OWNER_UID: Final = "owner-uid"
NAMESPACE: Final = "namespace"
"""The index that each cache needs whose objects a plan deletes (`LateCache`)."""


def by_uid(thing: KubeObject) -> Iterable[str]:
    return (thing.metadata.uid,)


def by_owner_uid(thing: KubeObject) -> Iterable[str]:
    owner = controller_of(thing.metadata)
    return () if owner is None else (owner.uid,)


def owned_by(owner: ObjectMeta, store: StoreView[T], index: str = OWNER_UID) -> tuple[T, ...]:
    """Return what the index lists under the owner's UID, in its namespace: Kubernetes ignores other references."""
    return tuple([each for each in store.by_index(index, owner.uid) if each.metadata.namespace == owner.namespace])


def by_namespace(thing: KubeObject) -> Iterable[str]:
    return (thing.metadata.namespace,)


class NamesInUse(Struct, frozen=True):
    """The names of all objects of a kind in a namespace, with any owner or none, and those of the keys `gone`. Use it
    as `name in names`: a large set looks up each of its names to find a free one.
    """

    namespace: str
    keys: Container[ObjectKey]
    gone: Container[ObjectKey] = ()

    def __contains__(self, name: object) -> bool:
        key = (self.namespace, name)
        return key in self.keys or key in self.gone
