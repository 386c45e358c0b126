"""Makes the patch that expands a claim (P21)."""

from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Final

import msgspec
from msgspec import Struct

from controller.apimachinery.quantities import parse_quantity
from controller.runtime.actions import Done, ExpandClaim, Outcome, Rejected
from informers.errors import ApiError
from informers.meta import ObjectMeta


class _Resources(Struct, frozen=True):
    requests: Mapping[str, str] | None = None


class _Spec(Struct, frozen=True):
    resources: _Resources | None = None


class _Claim(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec | None = None


MOST_SHARE: Final = Fraction(5, 4)
"""The largest size of a claim that CDI makes, as a multiple of the size in the template."""

_decode: Final = msgspec.json.Decoder(_Claim).decode


def expansion(action: ExpandClaim, answer: bytes) -> bytes | Outcome:
    """Return the patch that gives the claim its new size, or `Done` if the claim already has the size.

    `answer` is the claim as the server has it. The outcome is `Rejected` if the claim cannot be read or is being
    deleted.
    """
    try:
        claim = _decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Rejected(action, ApiError(f"{action.key} cannot be read: {error}"))
    meta = claim.metadata
    if meta.deletion_timestamp is not None:
        return Rejected(action, ApiError(f"the claim {action.key} is being deleted"))
    requests = (claim.spec and claim.spec.resources and claim.spec.resources.requests) or {}
    present = parse_quantity(requests.get("storage", "0")) or Fraction()
    old, new = (parse_quantity(size) or Fraction(1) for size in (action.old_size, action.size))
    if present >= new:
        return Done(action, meta.resource_version)
    # A repeated action finds the claim with at least the new size, so the share is added only once.
    share = present / old if old < present <= MOST_SHARE * old else Fraction(1)
    size = action.size if share == 1 else str(ceil(new * share))
    spec = {"resources": {"requests": {"storage": size}}}
    return msgspec.json.encode({"metadata": {"resourceVersion": meta.resource_version}, "spec": spec})
