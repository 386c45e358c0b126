"""Finds a quantity in a template that Kubernetes cannot read, such as `64MB` (R1, P1).

KubeVirt's CRDs accept any text there. Without this check, the API server would refuse each VM instead.
"""

import re
from collections.abc import Iterable
from typing import Final

from controller.apimachinery.field_error import FieldError, quoted
from controller.apimachinery.quantities import parse_quantity
from controller.kubevirt.normal_form import GoType, Json

_KINDS: Final = ("quantity", "quantity-or-zero")
_BYTES: Final = re.compile(r"([0-9.]+) *([kmgtpe])i?b?(?:ytes?)?", re.ASCII | re.IGNORECASE)
"""How users write a number of bytes, such as `64MB` or `2 gb`."""


def wrong_quantity(value: Json, type_: GoType, path: str) -> FieldError | None:
    """Return the error of the first quantity below `path` that cannot be read, or None."""
    found = _first_wrong(value, type_)
    if found is None:
        return None
    text, parts = found
    written = _BYTES.fullmatch(text.strip())
    right = f"{written[1]}{written[2].upper()}i" if written is not None else "500m or 2Gi"
    return FieldError(f"{path}{''.join(reversed(parts))} is {quoted(text)}: it must be a quantity such as {right}")


def _first_wrong(value: Json, type_: GoType) -> tuple[str, list[str]] | None:
    """Return the text of the first wrong quantity, and the parts of its path from the end, or None."""
    if isinstance(value, str) and type_.kind in _KINDS and parse_quantity(value) is None:
        return value, []
    inside: Iterable[tuple[str, Json, GoType]] = ()
    if type_.fields and isinstance(value, dict):
        inside = ((f".{name}", inner, type_.field(name)) for name, inner in value.items())
    elif type_.fields and isinstance(value, list):
        inside = ((f"[{place}]", inner, type_.element) for place, inner in enumerate(value))
    for part, inner, inner_type in inside:
        if found := _first_wrong(inner, inner_type):
            found[1].append(part)
            return found
    return None
