"""The labels and annotations with which users control the controller, and functions that read their values.

An invalid value never stops the controller. It counts as absent, and a `FieldError` tells the user.
"""

from __future__ import annotations

import re
from typing import Final

from controller.apimachinery.field_error import FieldError, quoted
from informers.meta import ObjectMeta

TEMPLATE_HASH: Final = "vmherd.dev/template-hash"
"""A label on each object that is created from a template. Objects with the same value have the same template (R14)."""

REMOVE: Final = "vmherd.dev/remove"
PROTECT: Final = "vmherd.dev/protect"
DELETION_COST: Final = "vmherd.dev/deletion-cost"
ROLLING_UPDATE: Final = "vmherd.dev/rolling-update"
PROGRESS_DEADLINE: Final = "vmherd.dev/progress-deadline-seconds"

POOL_FINALIZER: Final = "pool.kubevirt.io/finalizer"
"""A finalizer on a pool and on its VMs. The API server removes such an object only after the controller has removed
this finalizer (P6)."""

REVISION_NAME: Final = "kubevirt.io/vm-pool-revision-name"
"""A label on a VM and on its VMI: the revision of the pool's spec from which the object was created (P4)."""

MIN_READY: Final = "vmherd.dev/min-ready-seconds"
PARTITION: Final = "vmherd.dev/partition"
MAX_UNHEALTHY: Final = "vmherd.dev/max-unhealthy"
PARTITION_REVISION: Final = "vmherd.dev/partition-revision"
"""An annotation on a pool, written by the controller: the revision of the VMs below the partition (P14)."""

TAKEOVER: Final = "vmherd.dev/takeover"
"""An annotation on a pool in takeover mode. A user writes `proceed` to allow the first update. The controller writes
`done` and `held ...`."""

TAKEOVER_HELD: Final = "held"

HEALED: Final = "vmherd.dev/healed"
"""An annotation on a pool, written by the controller. It lists the ordinals that were healed recently, how often each
was healed, and when last (P15)."""

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,9})", re.ASCII)
_INT32 = range(-(2**31), 2**31)


def is_marked(meta: ObjectMeta, annotation: str) -> bool:
    """True if the value of the annotation is exactly "true"."""
    return meta.annotations is not None and meta.annotations.get(annotation) == "true"


def is_takeover_held(meta: ObjectMeta) -> bool:
    """True while the pool's first update in takeover mode is held."""
    return meta.annotations is not None and meta.annotations.get(TAKEOVER, "").startswith(TAKEOVER_HELD)


def deletion_cost(meta: ObjectMeta) -> int | FieldError:
    """The deletion cost of a VM or VMI: 0 if there is no annotation, a FieldError if the value is invalid. At a
    scale-in, members with a lower cost are deleted first (R6).
    """
    text = meta.annotations.get(DELETION_COST) if meta.annotations is not None else None
    if text is None:
        return 0
    cost = parse_integer(text)
    if cost is None:
        return FieldError(f"annotation {DELETION_COST} is {quoted(text)}: it must be an integer, so it counts as 0")
    return cost


def parse_integer(text: str) -> int | None:
    """The value of a 32-bit integer; None if the text is not one. As in Kubernetes' `pod-deletion-cost`, a plus sign
    and leading zeros are not allowed.
    """
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if number in _INT32 else None
