"""Ways into the caches that more than one kind takes: index functions, and which names are in use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from informers.meta import KubeObject, ObjectKey, controller_of
from informers.store import StoreView

OWNER_UID: Final = "owner-uid"
NAMESPACE: Final = "namespace"


def by_owner_uid(thing: KubeObject) -> Iterable[str]:
    """The UID of the object's controller, whatever it is."""
    owner = controller_of(thing.metadata)
    return () if owner is None else (owner.uid,)


def by_namespace(thing: KubeObject) -> Iterable[str]:
    """The namespace it lives in."""
    return (thing.metadata.namespace,)


class NamesInUse(Struct, frozen=True):
    """The names that a kind's objects have in a namespace, whoever owns them: `name in names`."""

    objects: StoreView[Any]
    namespace: str

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.objects.get(ObjectKey(self.namespace, name)) is not None
