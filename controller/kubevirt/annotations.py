"""The names of the controller's labels and annotations, and functions that read marks.

`catalogue` has the valid values of each annotation, and `tools/reference/annotations.md.in` the meaning of a setting.
"""

from typing import Final

from informers.meta import ObjectMeta

PREFIX: Final = "vmherd.dev/"
"""The prefix of all annotations that the controller reads on VMs, VMIs and ControllerRevisions."""

TEMPLATE_HASH: Final = "vmherd.dev/template-hash"
"""A label: objects with the same value were created from, or are the revision of, the same template (R14, R17)."""

IN_SERVICE: Final = "vmherd.dev/in-service"
"""A label that a user writes in the VMI template as "true". While a VM drains, its value is "false" (P26)."""

REMOVE: Final = "vmherd.dev/remove"
PROTECT: Final = "vmherd.dev/protect"
DELETION_COST: Final = "vmherd.dev/deletion-cost"
BUSY_UNTIL: Final = "vmherd.dev/busy-until"
CLAIMED_BY: Final = "vmherd.dev/claimed-by"
CLAIMED_UNTIL: Final = "vmherd.dev/claimed-until"
MAX_CLAIMED: Final = "vmherd.dev/max-claimed"
STANDBY: Final = "vmherd.dev/standby"
STANDBY_STATE: Final = "vmherd.dev/standby-state"
"""An annotation that the controller writes on a VM that is not one of the wanted ones: it is prepared, or it rests."""

STANDBY_MODE: Final = "vmherd.dev/standby-mode"
REUSE: Final = "vmherd.dev/reuse"
DRAIN_SECONDS: Final = "vmherd.dev/drain-seconds"
DRAINING: Final = "vmherd.dev/draining"
DRAINED: Final = "vmherd.dev/drained"
REPLACE_FINISHED: Final = "vmherd.dev/replace-finished"
SCALE_IN: Final = "vmherd.dev/scale-in"
DISRUPTION_BUDGET: Final = "vmherd.dev/disruption-budget"
SUBSTITUTE_LOST_AFTER: Final = "vmherd.dev/substitute-lost-after-seconds"
SUBSTITUTE: Final = "vmherd.dev/substitute"
ROLLING_UPDATE: Final = "vmherd.dev/rolling-update"
PROGRESS_DEADLINE: Final = "vmherd.dev/progress-deadline-seconds"
ROLLBACK: Final = "vmherd.dev/rollback"

READY_REVISION: Final = "vmherd.dev/ready-revision"
"""By the controller, with `ROLLBACK`: the last revision, or template hash of a set, with all VMs available (P29)."""

ROLLED_BACK: Final = "vmherd.dev/rolled-back"
"""By the controller: the digest of the template that stalled, the revision to return to, and since when (P29)."""

ROLLED_OUT: Final = "vmherd.dev/rolled-out"
"""On a revision, by the controller: when its template was last rolled out again (R14, R17)."""

ADOPTED_TEMPLATE: Final = "vmherd.dev/adopted-template"
"""On a set, by the controller: the template hash of members without one, as after a takeover (R14)."""

POOL_FINALIZER: Final = "pool.kubevirt.io/finalizer"
"""On a pool and its VMs: they are gone only after the controller has removed the finalizer (P6)."""

REVISION_NAME: Final = "kubevirt.io/vm-pool-revision-name"
"""A label on a VM and its VMI: the name of the revision of the pool from which it was created (P4)."""

VM_GENERATION: Final = "kubevirt.io/vm-generation"
"""On a VMI, by KubeVirt: the generation of the VM whose spec the VMI runs."""

POOL_UID: Final = "vmherd.dev/pool-uid"
"""A label on a pool's ControllerRevisions: the UID of the pool, also after a deletion with `--cascade=orphan` (P11)."""

MIN_READY: Final = "vmherd.dev/min-ready-seconds"
PARTITION: Final = "vmherd.dev/partition"
MAX_UNHEALTHY: Final = "vmherd.dev/max-unhealthy"
PARTITION_REVISION: Final = "vmherd.dev/partition-revision"
"""On a pool, by the controller: the name of the revision for new VMs with an ordinal below the partition (P14)."""

RELEASED: Final = "vmherd.dev/released"
"""On a set or pool: how many members were released in a row because of their labels, and when the last one was."""

PARTITION_STEP: Final = "vmherd.dev/partition-step"
"""On a pool, by the controller and `rollout resume`: the template, the steps and the one that has begun (P14)."""

ADOPT_DISKS: Final = "vmherd.dev/adopt-disks"
KEPT_FOR: Final = "vmherd.dev/kept-for"
"""A label on a disk without its VM: the pool, as at most 63 characters. Other pools do not use it (P10, P21)."""

USED_FOR: Final = "vmherd.dev/used-for"
"""Takes the place of `KEPT_FOR` when a new VM uses the disk again, until the disk is kept again (P10)."""

INDEX_SYSPREP: Final = "vmherd.dev/index-sysprep"
TAKEOVER: Final = "vmherd.dev/takeover"
"""On a pool in takeover mode: `held ...` until a user writes `proceed` for the first update, and then `done`."""

TAKEOVER_HELD: Final = "held"
"""The first word of the takeover annotation while the first update waits for the user's permission."""

MOST_DISRUPTIVE: Final = "vmherd.dev/most-disruptive-action"
SCOUTED: Final = "vmherd.dev/scouted"
"""On a pool, by the controller: a template's digest, and the VM with it when KubeVirt asked for a restart (P21)."""

MIGRATE: Final = "vmherd.dev/migrate"
RESTART: Final = "restart"
"""The value of `MOST_DISRUPTIVE` that allows an update to restart VMs, and not to delete them."""

RECREATE: Final = "recreate"
"""The value of `MOST_DISRUPTIVE` that allows an update to delete VMs with their disks."""

RECREATED: Final = "vmherd.dev/recreated"
"""On a pool, by the controller: the ordinals whose VM an update deletes or has deleted, with its UID (P20)."""

HEALED: Final = "vmherd.dev/healed"
"""On a pool, by the controller: the ordinals of healed VMs, with the number and the last time of healings (P15)."""

UNREADY: Final = "vmherd.dev/unready"
"""On a pool, by the controller: the ordinals of unready VMs, with the UID and the time since when (P15)."""

HISTORY: Final = "vmherd.dev/history"
"""On a set or pool, by the controller: what happened to it last. No decision reads it (`replicas/history.py`)."""

REPLACE_UNREADY_AFTER: Final = "vmherd.dev/replace-unready-after-seconds"
EARLY_FAILURES: Final = "vmherd.dev/early-failures"
"""On a VMI of a set, by the controller: the number of failures in a row before it, and when they began (R4a)."""

OWN_NOTES: Final = (DRAINING, DRAINED, SUBSTITUTE, STANDBY_STATE, EARLY_FAILURES)
"""What vmherd writes on a member, with the answer to its mark. A member that leaves loses it (R2, P2)."""


MEMBER_MARKS: Final = frozenset({CLAIMED_BY, CLAIMED_UNTIL, *OWN_NOTES})
"""What says something about one member. A template has it by mistake, as part of a member: no new member gets it."""


def own_notes(meta: ObjectMeta) -> tuple[str, ...]:
    return tuple(each for each in OWN_NOTES if meta.annotations is not None and each in meta.annotations)


def is_marked(meta: ObjectMeta, annotation: str) -> bool:
    return meta.annotations is not None and meta.annotations.get(annotation) == "true"


PAUSING: Final = "pausing"
"""The mark of a standby that vmherd pauses now. A VMI may be paused as soon as its VM has this mark."""

PAUSED: Final = "paused "
"""The beginning of the mark of a standby that rests with its memory. The UID of its VMI follows."""


def standby_mark(meta: ObjectMeta) -> str:
    """Return the mark of a standby or a woken VM (P32), or "". Its annotation ends with the name of the VM. Without it,
    a user or a policy has written the annotation, maybe on all VMs, and the VM may serve.
    """
    text, name = (meta.annotations or {}).get(STANDBY_STATE, ""), f" {meta.name}"
    return text.removesuffix(name) if text.endswith(name) else ""


def is_to_be_paused(meta: ObjectMeta) -> bool:
    """Return True if vmherd pauses the VMI of this VM, or has paused it (P32)."""
    return standby_mark(meta).startswith((PAUSING, PAUSED))


def is_protected(meta: ObjectMeta) -> bool:
    """Return True if `vmherd.dev/protect` has any value but "false": a wrong value never leads to a deletion (P20)."""
    return meta.annotations is not None and meta.annotations.get(PROTECT, "false") != "false"


def is_takeover_held(meta: ObjectMeta) -> bool:
    return meta.annotations is not None and meta.annotations.get(TAKEOVER, "").startswith(TAKEOVER_HELD)
