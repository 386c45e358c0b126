"""The names of the controller's labels and annotations, and functions that read marks.

`catalogue` has the valid values of each annotation.
"""

from typing import Final

from informers.meta import ObjectMeta

PREFIX: Final = "vmherd.dev/"
"""The prefix of all annotations that the controller reads on VMs, VMIs and ControllerRevisions."""

TEMPLATE_HASH: Final = "vmherd.dev/template-hash"
"""A label on each object that is created from a template. Objects with the same value of the label were created from
the same template (R14). A set's ControllerRevision with this template has the label, too (R17).
"""

IN_SERVICE: Final = "vmherd.dev/in-service"
"""A label that a user writes in the VMI template, with the value "true". While a VM drains, the value is "false" (P26).
"""

REMOVE: Final = "vmherd.dev/remove"
PROTECT: Final = "vmherd.dev/protect"
DELETION_COST: Final = "vmherd.dev/deletion-cost"
BUSY_UNTIL: Final = "vmherd.dev/busy-until"
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
"""An annotation that the controller writes on a set or pool with the annotation `ROLLBACK`. The value is the name of a
pool's revision, or the template hash of a set: the last that all VMs had while all were available (P29).
"""

ROLLED_BACK: Final = "vmherd.dev/rolled-back"
"""An annotation that the controller writes on a set or pool whose VMs return by themselves. The value has the digest of
the template that stalled, and the revision to which the VMs return (P29).
"""

ADOPTED_TEMPLATE: Final = "vmherd.dev/adopted-template"
"""An annotation that the controller writes on a set. The value is the hash of the set's template at the time when the
controller first saw members without the label `TEMPLATE_HASH`, for example after a takeover. Such members belong to
this template (R14).
"""

POOL_FINALIZER: Final = "pool.kubevirt.io/finalizer"
"""A finalizer on a pool and on the VMs of the pool. The API server removes an object with this finalizer only after the
controller has removed the finalizer (P6).
"""

REVISION_NAME: Final = "kubevirt.io/vm-pool-revision-name"
"""A label on a VM of a pool and on the VMI of the VM. The object was created from a revision of the pool's spec. The
value is the name of this revision (P4).
"""

POOL_UID: Final = "vmherd.dev/pool-uid"
"""A label on a pool's ControllerRevisions. The value is the UID of the pool. A deletion with `--cascade=orphan` removes
the owner reference, but the label still names the pool (P11).
"""

MIN_READY: Final = "vmherd.dev/min-ready-seconds"
PARTITION: Final = "vmherd.dev/partition"
MAX_UNHEALTHY: Final = "vmherd.dev/max-unhealthy"
PARTITION_REVISION: Final = "vmherd.dev/partition-revision"
"""An annotation that the controller writes on a pool. The value is the name of a revision. New VMs with an ordinal
below the partition get this revision (P14).
"""

RELEASED: Final = "vmherd.dev/released"
"""On a set or pool: how many members were released in a row because of their labels, and when the last one was."""

PARTITION_STEP: Final = "vmherd.dev/partition-step"
"""An annotation on a pool whose partition has several steps. The value names the step of the update that has begun, the
template and the steps (P14). The controller and `kubectl vmherd rollout resume` write it.
"""

ADOPT_DISKS: Final = "vmherd.dev/adopt-disks"
"""An annotation on a pool. With the value "true", new VMs use disks without an owner that have the names of their disks
(P21).
"""

KEPT_FOR: Final = "vmherd.dev/kept-for"
"""A label on a disk that vmherd kept when its VM was deleted. The value is the name of the pool, or its first 63
characters. Other pools do not use the disk (P10, P21).
"""

INDEX_SYSPREP: Final = "vmherd.dev/index-sysprep"
"""An annotation on a pool. With the value "true", the controller also adds the ordinal to the references of `sysprep`
volumes (P5). The controller copies the annotation to the pool's revisions, because the annotation changes how VMs are
created.
"""

TAKEOVER: Final = "vmherd.dev/takeover"
"""An annotation on a pool in takeover mode. A user writes `proceed` to allow the first update. The controller writes
`held ...` while the first update waits for the user's permission. It writes `done` when no permission is needed any
more.
"""

TAKEOVER_HELD: Final = "held"
"""The first word of the takeover annotation while the first update waits for the user's permission."""

MOST_DISRUPTIVE: Final = "vmherd.dev/most-disruptive-action"
"""An annotation on a pool. The value is the most disruptive action that an update may take: `live` changes running VMs
only where KubeVirt can, `restart` also restarts VMs, and `recreate` also deletes VMs with their disks (P21). Any other
value counts as `live`.
"""

MIGRATE: Final = "vmherd.dev/migrate"
"""An annotation on a pool. With the value "true", the controller starts the live migrations that end live changes of
the pool's VMs, if KubeVirt starts none (P13).
"""

RESTART: Final = "restart"
"""The value of `MOST_DISRUPTIVE` that allows an update to restart VMs, and not to delete them."""

RECREATE: Final = "recreate"
"""The value of `MOST_DISRUPTIVE` that allows an update to delete VMs with their disks."""

RECREATED: Final = "vmherd.dev/recreated"
"""An annotation that the controller writes on a pool. The value lists the ordinals whose VM an update deletes or has
deleted. For each ordinal the value has the UID of this VM (P20).
"""

HEALED: Final = "vmherd.dev/healed"
"""An annotation that the controller writes on a pool. The value lists the ordinals of the recently healed VMs. For each
ordinal the value has the number of healings and the time of the last healing (P15).
"""

UNREADY: Final = "vmherd.dev/unready"
"""An annotation that the controller writes on a pool. The value lists the ordinals of VMs that have not been ready for
a while. For each ordinal, the value has the UID of the VM, and the time at which the VM became unready (P15).
"""

REPLACE_UNREADY_AFTER: Final = "vmherd.dev/replace-unready-after-seconds"
"""An annotation on a set or pool. The value is a number of seconds. If a VM or VMI runs but has not been ready for this
time, the VM or VMI is replaced. Without the annotation, no VM or VMI is replaced for this reason.
"""

EARLY_FAILURES: Final = "vmherd.dev/early-failures"
"""An annotation that the controller writes on a VMI of a set. The VMI replaces another VMI, which failed soon after its
start. The value contains the number of VMIs that failed in a row before this VMI, and the creation time of the first
failed VMI (R4a).
"""

OWN_NOTES: Final = (DRAINING, DRAINED, SUBSTITUTE, EARLY_FAILURES)
"""What vmherd writes on a member, with the answer to its mark. A member that leaves loses it (R2, P2)."""


def own_notes(meta: ObjectMeta) -> tuple[str, ...]:
    return tuple(each for each in OWN_NOTES if meta.annotations is not None and each in meta.annotations)


def is_marked(meta: ObjectMeta, annotation: str) -> bool:
    return meta.annotations is not None and meta.annotations.get(annotation) == "true"


def is_protected(meta: ObjectMeta) -> bool:
    """Return True if the annotation `vmherd.dev/protect` forbids the deletion of this VM or VMI (P20).

    Every value but "false" protects. So a wrong value, such as "True", never leads to a deletion.
    """
    return meta.annotations is not None and meta.annotations.get(PROTECT, "false") != "false"


def is_takeover_held(meta: ObjectMeta) -> bool:
    return meta.annotations is not None and meta.annotations.get(TAKEOVER, "").startswith(TAKEOVER_HELD)
