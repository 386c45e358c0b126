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
    if isinstance(value, str) and type_.kind in _KINDS and parse_quantity(value) is None:
        found = _BYTES.fullmatch(value.strip())
        right = f"{found[1]}{found[2].upper()}i" if found is not None else "500m or 2Gi"
        return FieldError(f"{path} is {quoted(value)}: it must be a quantity such as {right}")
    errors: Iterable[FieldError | None] = ()
    if type_.fields and isinstance(value, dict):
        errors = (wrong_quantity(inner, type_.field(name), f"{path}.{name}") for name, inner in value.items())
    elif type_.fields and isinstance(value, list):
        errors = (wrong_quantity(inner, type_.element, f"{path}[{place}]") for place, inner in enumerate(value))
    return next(filter(None, errors), None)
