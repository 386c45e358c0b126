"""The next step for a simulated object: the types between the pure behaviors and the loop that runs them.

A behavior gets one object, its related objects and the time. It returns one `Step`. It is called again when one of
these objects changes, when the step's delay is over, and after every failure. It never sees a state from before its own
writes. It has no memory, so a restarted simulator continues from the state of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from informers.meta import KubeObject
from informers.resource import Resource

T = TypeVar("T", bound=KubeObject)


class Patch(Struct, frozen=True):
    """Change the object itself with a JSON merge patch. The patch names the UID of the object."""

    body: bytes
    subresource: str = ""


class Create(Struct, frozen=True):
    """Create another object in the same namespace. If it already exists, nothing is done."""

    resource: Resource[Any]
    body: bytes


class Change(Struct, frozen=True):
    """Change another object of the same namespace. If it no longer exists, nothing is done."""

    resource: Resource[Any]
    name: str
    patch: Patch


class Delete(Struct, frozen=True):
    """Delete another object of the same namespace if it still has this UID."""

    resource: Resource[Any]
    name: str
    uid: str


Effect: TypeAlias = Create | Change | Delete


class Step(Struct, frozen=True, kw_only=True):
    """One action: change other objects, or patch the object itself, or wait, or do nothing until something changes.

    A step that writes has no delay, because the write comes back as a change. `warnings` describe annotations that were
    ignored. The same mistake always has the same text.
    """

    effects: tuple[Effect, ...] = ()
    write: Patch | None = None
    after_s: float | None = None
    warnings: tuple[str, ...] = ()


NextStep: TypeAlias = Callable[[T, datetime, datetime], Step]
"""A behavior with access to related objects. Its arguments: the object, the current time, when the object was first
seen."""
