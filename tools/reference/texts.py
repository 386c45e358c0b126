"""The handwritten parts of the reference: the meaning of each label."""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class Text(Struct, frozen=True):
    """A label."""

    name: str
    on: str
    meaning: str


LABELS: Final = (
    Text("vmherd.dev/template-hash", "VMIs and ControllerRevisions of a set", "the hash of the template"),
    Text("vmherd.dev/pool-uid", "ControllerRevisions of a pool", "the pool that created the revision"),
)
