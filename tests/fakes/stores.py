"""Stores for tests. Their contents are filled in the same way as by an informer."""

from collections.abc import Iterable
from typing import TypeVar

from informers.meta import KubeObject
from informers.store import ALL_NAMESPACES, Change, Store

T = TypeVar("T", bound=KubeObject)


def replace(
    store: Store[T], objects: Iterable[T], version: str, *, scope: str = ALL_NAMESPACES
) -> tuple[Change[T], ...]:
    """Replace the contents of the store by a new list. Return the changes."""
    replacement = store.begin_replace(scope=scope)
    for obj in objects:
        replacement.put(obj)
    store.commit(replacement, version, scope=scope)
    return tuple(change for changes in replacement.changes(at_once=1000) for change in changes)
