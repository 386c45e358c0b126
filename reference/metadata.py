"""The page of all labels and annotations. Each name in the code needs a text, and no other name has a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller.kubevirt import annotations as names
from reference.markdown import code, generated, table
from reference.texts import OF_OWNERS, OF_VMS, WRITTEN, Text

PROSE = """
vmherd ignores an annotation with an invalid value. The Event `InvalidAnnotation` then names the annotation and the
value that vmherd uses instead. [The sandbox](../sandbox.md) has annotations of its own, which start with
`sim.vmherd.dev/`.
"""
HEADER: Final = ("annotation", "on", "meaning")


class Undescribed(ValueError):
    """The names in the code and the names with a text differ. `str()` lists the names."""


def page() -> str:
    """Return the page. Raises Undescribed."""
    described = {text.name.partition(":")[0] for text in (*OF_VMS, *OF_OWNERS, *WRITTEN)}
    if described != known_names():
        raise Undescribed(f"in only one of the code and reference/texts.py: {sorted(described ^ known_names())}")
    return "\n".join(
        (
            generated("Labels and annotations", PROSE),
            f"## On VMs and VMIs\n\nThese annotations change the order of a scale-in.\n\n{_table(OF_VMS)}",
            f"## On sets and pools\n\n{_table(OF_OWNERS)}",
            f"## Written by vmherd\n\nDo not change these labels and annotations.\n\n{_table(WRITTEN)}",
        )
    )


def known_names() -> set[str]:
    """The labels and annotations in the code, without the prefix itself."""
    values: Mapping[str, object] = vars(names)
    found = {value for value in values.values() if isinstance(value, str) and value.startswith(names.PREFIX)}
    return found - {names.PREFIX}


def _table(texts: tuple[Text, ...]) -> str:
    return table(HEADER, [(code(text.name), text.on, text.meaning) for text in texts])
