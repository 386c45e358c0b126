"""Makes the patch that expands a claim (P21)."""

from fractions import Fraction
from math import ceil
from typing import Final

import msgspec

from controller.apimachinery.quantities import parse_quantity
from controller.apimachinery.raw_json import text_of, value_at
from controller.runtime.actions import Done, ExpandClaim, Outcome, Rejected
from informers.errors import ApiError
from informers.meta import ObjectMeta

MOST_SHARE: Final = Fraction(5, 4)
"""The largest size of a claim that CDI makes, as a multiple of the size in the template."""


def expansion(action: ExpandClaim, meta: ObjectMeta, claim: bytes) -> bytes | Outcome:
    """Return the patch with the new size, `Done` if the claim has it, or `Rejected` if it is being deleted."""
    if meta.deletion_timestamp is not None:
        return Rejected(action, ApiError(f"the claim {action.key} is being deleted"))
    requested = text_of(value_at(claim, "spec", "resources", "requests", "storage"))
    present = parse_quantity(requested or "0") or Fraction()
    old, new = (parse_quantity(size) or Fraction(1) for size in (action.old_size, action.size))
    if present >= new:
        return Done(action, meta.resource_version)
    # A repeated action finds the claim with at least the new size, so the share is added only once.
    share = present / old if old < present <= MOST_SHARE * old else Fraction(1)
    size = action.size if share == 1 else str(ceil(new * share))
    spec = {"resources": {"requests": {"storage": size}}}
    return msgspec.json.encode({"metadata": {"resourceVersion": meta.resource_version}, "spec": spec})
