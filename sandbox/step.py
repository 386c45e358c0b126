"""What a simulated part does next: the vocabulary between the pure behaviors and the loop that carries them out.

A behavior looks at one object, at what is around it, and at the time, and answers with one `Step`. It is asked again
when the object or its surroundings change, when the step's delay is over, and after every failure; it is never shown a
state from before its own writes. It keeps nothing in mind, so a simulator that is restarted goes on where the cluster
stands.
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
    """Change the object itself: a JSON merge patch that names the UID of the object it is meant for."""

    body: bytes
    subresource: str = ""


class Create(Struct, frozen=True):
    """Make another object, in the same namespace. One that is there already is as good."""

    resource: Resource[Any]
    body: bytes


class Change(Struct, frozen=True):
    """Change another object of the same namespace. One that has gone meanwhile needs no change."""

    resource: Resource[Any]
    name: str
    patch: Patch


class Delete(Struct, frozen=True):
    """Delete another object of the same namespace, if it still is the one with this UID."""

    resource: Resource[Any]
    name: str
    uid: str


Effect: TypeAlias = Create | Change | Delete


class Step(Struct, frozen=True, kw_only=True):
    """Do this to other objects, or write this to the object itself, or wait so long, or rest until something changes.

    One of them at a time. A step that writes needs no delay: what it wrote comes back as a change. `flaws` are the
    user's mistakes that were passed over, each a sentence that is the same every time.
    """

    effects: tuple[Effect, ...] = ()
    write: Patch | None = None
    after_s: float | None = None
    flaws: tuple[str, ...] = ()


NextStep: TypeAlias = Callable[[T, datetime, datetime], Step]
"""A behavior that knows its surroundings: the object, the time now, and when the object was first seen."""
