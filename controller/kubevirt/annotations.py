"""The labels and annotations by which users steer the controller, and how their values are read.

A value that cannot be read never stops anything: it counts as absent, and its `FieldError` tells the user.
"""

from __future__ import annotations

import re
from typing import Final

from controller.apimachinery.field_error import FieldError, quoted
from informers.meta import ObjectMeta

TEMPLATE_HASH: Final = "vmherd.dev/template-hash"
"""Label on what is made from a template: two objects with the same value came from the same template (R14)."""

REMOVE: Final = "vmherd.dev/remove"
PROTECT: Final = "vmherd.dev/protect"
DELETION_COST: Final = "vmherd.dev/deletion-cost"
ROLLING_UPDATE: Final = "vmherd.dev/rolling-update"
PROGRESS_DEADLINE: Final = "vmherd.dev/progress-deadline-seconds"

POOL_FINALIZER: Final = "pool.kubevirt.io/finalizer"
"""On a pool and on its VMs: each is let go by us before it may vanish (P6)."""

REVISION_NAME: Final = "kubevirt.io/vm-pool-revision-name"
"""Label on a VM, and on the VMI that it starts: the revision of the pool's spec that it was made from (P4)."""

MIN_READY: Final = "vmherd.dev/min-ready-seconds"
PARTITION: Final = "vmherd.dev/partition"
MAX_UNHEALTHY: Final = "vmherd.dev/max-unhealthy"
PARTITION_REVISION: Final = "vmherd.dev/partition-revision"
"""On a pool, written by the controller: the revision of the VMs below the partition (P14)."""

TAKEOVER: Final = "vmherd.dev/takeover"
"""On a pool in takeover mode: `proceed` allows the first update. The controller writes `done` and `held ...`."""

TAKEOVER_HELD: Final = "held"

HEALED: Final = "vmherd.dev/healed"
"""On a pool, written by the controller: which ordinals were healed lately, how often, and when last (P15)."""

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,9})", re.ASCII)
_INT32 = range(-(2**31), 2**31)


def is_marked(meta: ObjectMeta, annotation: str) -> bool:
    """Whether the annotation says exactly "true"."""
    return meta.annotations is not None and meta.annotations.get(annotation) == "true"


def is_takeover_held(meta: ObjectMeta) -> bool:
    """True while the pool's first update in takeover mode is held."""
    return meta.annotations is not None and meta.annotations.get(TAKEOVER, "").startswith(TAKEOVER_HELD)


def deletion_cost(meta: ObjectMeta) -> int | FieldError:
    """What the VM is worth to its user when a set shrinks; 0 where nothing is said (R6)."""
    text = meta.annotations.get(DELETION_COST) if meta.annotations is not None else None
    if text is None:
        return 0
    cost = parse_integer(text)
    if cost is None:
        return FieldError(f"annotation {DELETION_COST} is {quoted(text)}: it must be an integer, so it counts as 0")
    return cost


def parse_integer(text: str) -> int | None:
    """A 32-bit integer, spelled as Kubernetes wants it in `pod-deletion-cost`: no plus sign, no leading zeros."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if number in _INT32 else None
