"""The handwritten parts of the reference: the meaning of each label and annotation."""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class Text(Struct, frozen=True):
    """A label or annotation. `name` is the name, or an annotation with an example of its value."""

    name: str
    on: str
    meaning: str


OF_VMS: Final = (
    Text(
        'vmherd.dev/remove: "true"',
        "VMs, VMIs",
        "the VM is deleted first; while KubeVirt snapshots, restores, backs up or migrates it, or attaches a disk, "
        "it is deleted last",
    ),
    Text('vmherd.dev/protect: "true"', "VMs, VMIs", "a scale-in never deletes the VM"),
    Text(
        'vmherd.dev/deletion-cost: "10"',
        "VMs, VMIs",
        "VMs with a lower cost are deleted first; the default is 0",
    ),
)

OF_OWNERS: Final = (
    Text(
        'vmherd.dev/rolling-update: "maxUnavailable=25%"',
        "sets",
        "replace VMIs of an older template; at most this share of the VMIs is unavailable at the same time",
    ),
    Text(
        'vmherd.dev/min-ready-seconds: "60"',
        "pools",
        "a restarted VM counts as available after it was ready for this time",
    ),
    Text(
        'vmherd.dev/partition: "3"',
        "pools",
        "VMs with a smaller ordinal keep their revision, for a canary update",
    ),
    Text(
        'vmherd.dev/max-unhealthy: "30%"',
        "pools",
        "if more VMs fail together, no VM is healed; the default is 50%",
    ),
    Text(
        'vmherd.dev/index-sysprep: "true"',
        "pools",
        "with `appendIndexToConfigMapRefs` or `appendIndexToSecretRefs`: the references of `sysprep` volumes get the "
        "ordinal too; a change of the annotation updates the VMs like a new template",
    ),
    Text(
        'vmherd.dev/progress-deadline-seconds: "600"',
        "both",
        "time that an update may wait before the Event `RolloutStalled` and the condition `Stalled`",
    ),
    Text(
        'vmherd.dev/replace-unready-after-seconds: "900"',
        "both",
        "replace a VM or VMI that runs and has not been ready for this time, in pools within the limits of healing; "
        "off by default",
    ),
    Text(
        'vmherd.dev/takeover: "proceed"',
        "pools",
        "in takeover mode: allow the update that the Event `TakeoverHeld` reports",
    ),
)

WRITTEN: Final = (
    Text("vmherd.dev/template-hash", "VMIs and ControllerRevisions of a set", "label: the hash of the template"),
    Text(
        "vmherd.dev/early-failures",
        "VMIs of a set",
        "how many VMIs failed in a row before this VMI, so that the delays between replacements survive a restart of "
        "vmherd",
    ),
    Text(
        "vmherd.dev/pool-uid",
        "ControllerRevisions of a pool",
        "label: the pool that created the revision",
    ),
    Text(
        "vmherd.dev/index-sysprep",
        "ControllerRevisions of a pool",
        "the VMs of this revision have `sysprep` references with the ordinal",
    ),
    Text(
        "vmherd.dev/healed",
        "pools",
        "the recent healings, so that the delays between healings survive a restart of vmherd",
    ),
    Text(
        "vmherd.dev/unready",
        "pools",
        "VMs that are not ready, each with the time at which it became unready; a restart of vmherd does not reset the "
        "time",
    ),
    Text("vmherd.dev/partition-revision", "pools", "the revision of the VMs below the partition"),
    Text(
        "vmherd.dev/takeover",
        "pools",
        "in takeover mode: `done` if vmherd manages the pool, `held ...` while its update waits for permission",
    ),
)
