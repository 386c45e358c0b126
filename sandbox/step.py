"""What a simulated part does next: the vocabulary between the pure behaviors and the loop that carries them out.

A behavior looks at one object and at the time, and answers with one `Step`. It is asked again when the object changes,
when the step's delay is over, and after every failure; it keeps nothing in mind, so a simulator that is restarted goes
on where the cluster stands.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias, TypeVar

from msgspec import Struct

from informers.meta import KubeObject

T = TypeVar("T", bound=KubeObject)


class Patch(Struct, frozen=True):
    """Change the object itself: a JSON merge patch that names the UID of the object it is meant for."""

    body: bytes
    subresource: str = ""


class Step(Struct, frozen=True, kw_only=True):
    """Write this, or wait so long, or, with neither, rest until something changes.

    A step that writes needs no delay: what it wrote comes back as a change. `flaws` are the user's mistakes that were
    passed over, each a sentence that is the same every time.
    """

    write: Patch | None = None
    after_s: float | None = None
    flaws: tuple[str, ...] = ()


NextStep: TypeAlias = Callable[[T, datetime, datetime], Step]
"""A behavior: the object, the time now, and when the object was first seen. Pure."""
