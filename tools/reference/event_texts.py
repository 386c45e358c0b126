"""The handwritten parts of the page of Events: the meaning of each Event, and what to do about it."""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class EventText(Struct, frozen=True):
    """An Event. `when` tells Events of the same reason apart. It is empty if all Events of the reason mean the same."""

    reason: str
    meaning: str
    remedy: str
    when: str = ""


EVENTS: Final = (
    EventText(
        "SuccessfulCreate",
        "a VM or VMI was created",
        "nothing",
    ),
    EventText(
        "SuccessfulDelete",
        "a VM or VMI was deleted; the message has the cause",
        "nothing",
    ),
    EventText(
        "SuccessfulUpdate",
        "a VM got the current template",
        "nothing",
    ),
    EventText(
        "SuccessfulPaused",
        "the object was paused",
        "nothing",
    ),
    EventText(
        "SuccessfulResumed",
        "the object was resumed",
        "nothing",
    ),
    EventText(
        "SuccessfulResume",
        "the object was resumed",
        "nothing",
    ),
    EventText(
        "FailedScaleOut",
        "a pool has a new `ReplicaFailure`; the message names the step",
        "see the Events about the single VMs",
    ),
    EventText(
        "FailedScaleIn",
        "a pool has a new `ReplicaFailure`; the message names the step",
        "see the Events about the single VMs",
    ),
    EventText(
        "FailedRevisionPruning",
        "a pool has a new `ReplicaFailure`; the message names the step",
        "see the Events about the single VMs",
    ),
    EventText(
        "FailedHealing",
        "a pool has a new `ReplicaFailure`; a failing VM could not be replaced, and the message says why",
        "see the Event `HealingHeld` of the VM",
    ),
    EventText(
        "FailedPoolUpdate",
        "the API server refused a patch of the pool's metadata, for example of its finalizer",
        "read the message: usually a policy, a webhook, or a missing permission",
    ),
    EventText(
        "VirtualMachineFailure",
        "KubeVirt cannot start VMs of a pool; the message has the cause of one of them",
        "correct the template, or the VM; `kubectl describe vm` shows the condition",
    ),
    EventText(
        "SelectorMatchesNoPod",
        "the Pods of a pool lack a label of the pool's selector, so an autoscaler finds no Pod",
        "add the label to `spec.virtualMachineTemplate.spec.template.metadata.labels`; ignore the Event if "
        "the pool has no autoscaler",
    ),
    EventText(
        "FieldIgnored",
        "`basePolicy` and `sortPolicy` are set and differ",
        "remove `basePolicy`, the name of the field in KubeVirt 1.6",
    ),
    EventText(
        "FailedCreate",
        "the API server refused a VM or VMI",
        "read the message: usually a quota, a webhook, or an invalid template. vmherd tries again with growing delays",
    ),
    EventText(
        "FailedDelete",
        "the API server refused a deletion",
        "read the message: a webhook, or a missing permission",
    ),
    EventText(
        "FailedUpdate",
        "a VM could not be updated to the new template, a set could not adopt or release a VMI, or the object has a "
        "new `ReplicaFailure` with this reason",
        "read the message; the other VMs are updated",
    ),
    EventText(
        "InvalidSpec",
        "vmherd does nothing for this object",
        "correct the field in the message. The CRD rejects most of these mistakes; such an object was created "
        "before the CRD had this check",
    ),
    EventText(
        "ReplicasLimited",
        "`spec.replicas` is larger than `--max-replicas`, so vmherd creates only so many",
        "correct the number, or increase the limit",
    ),
    EventText(
        "ReleaseHeld",
        "the labels of a new VM or VMI do not match its set or pool; it is released, and replaced, only "
        "30 s after its creation",
        "find the webhook that changes labels, or ignore the Event if you changed the labels",
    ),
    EventText(
        "InvalidAnnotation",
        "an annotation `vmherd.dev/...` of the object or of its VMs is unknown, misplaced or invalid; the message "
        "says what is right and what happens instead",
        "correct or remove the annotation",
    ),
    EventText(
        "BackOff",
        "VMIs of a set fail or end soon after they start, so their replacements wait; the condition `ReplicaBackOff` "
        "has the next time",
        "look at the failed VMIs, which stay while their replacements wait: `kubectl describe vmi`. Correct "
        "the template, or delete a failed VMI to end its delay",
    ),
    EventText(
        "UnreadyReplaced",
        "a VMI of a set ran and was not ready for the time in `vmherd.dev/replace-unready-after-seconds`",
        "nothing, or find out why the guest does not become ready",
    ),
    EventText(
        "ProtectedFromDeletion",
        "a scale-in deleted too few VMs, because the other VMs are protected",
        "remove `vmherd.dev/protect`, or increase the replicas again",
    ),
    EventText(
        "ScaleInIncomplete",
        "a scale-in deleted too few VMs, because its selectors match no other VMs",
        "change the selectors, or increase the replicas again",
    ),
    EventText(
        "RolloutStalled",
        "an update waits for VMs that do not become ready",
        "look at the VM in the message; the update continues with a working template or with the old template",
    ),
    EventText(
        "UpdateHeld",
        "an update waits for a snapshot, a restore, a backup, a migration, a hot-plug or a pause of the VM in the "
        "message, or it would delete disks that must stay",
        "nothing: the update continues afterwards. If the VM needs manual recovery, correct its volumes. If the "
        'message says "delete it", delete the VM. If it names an annotation, set the annotation to allow the update',
    ),
    EventText(
        "UpdateHeld",
        "the API server would refuse the new VM or VMI, or `--max-replicas` would, so the old one is not deleted",
        "read the message: usually a quota, a webhook, or an invalid template. vmherd tries again with growing delays",
        '"would be refused" or "--max-replicas"',
    ),
    EventText(
        "HealingHeld",
        "the API server would refuse the new VM or VMI, or `--max-replicas` would, so the unready one is not deleted",
        "read the message: usually a quota, a webhook, or an invalid template. vmherd tries again with growing delays",
        '"would be refused" or "--max-replicas"',
    ),
    EventText(
        "ScaleInHeld",
        "a VMI of a set is paused, by a user or because its storage has no space, so vmherd does not delete it. An "
        "update of such a VMI has the Event `UpdateHeld`",
        "resume the VMI, or delete it yourself",
        '"it is paused"',
    ),
    EventText(
        "FailedUpdate",
        "VMs with run strategy `Manual` or `RerunOnFailure` need a restart through virt-api, and the cluster "
        "does not serve it",
        "start virt-api, or restart the VMs by hand",
        '"is not served"',
    ),
    EventText(
        "HealingHeld",
        "too many VMs fail together, so vmherd does not replace them",
        "find the common cause: a network, a storage class, an image. Healing continues when fewer VMs fail",
    ),
    EventText(
        "HealingHeld",
        "the disk of this VM fails, and statePreservation keeps its disks",
        "repair or delete the disk, or delete the VM",
        "with the name of a VM and a disk",
    ),
    EventText(
        "UndecodableVirtualMachine",
        "a field of this VM or VMI has a type that vmherd does not expect, such as a number in "
        "`status.phase`. vmherd reads only the metadata of the object. The object counts, is not ready, and is "
        "not updated, healed or deleted. The Event comes again each time the age of the object has doubled",
        "find the client that wrote the field (`kubectl get --show-managed-fields`), and correct the field, "
        "or delete the object",
    ),
    EventText(
        "HealingHeld",
        "KubeVirt snapshots, restores, backs up or migrates this VM, or attaches a disk, so vmherd does not "
        "delete it now",
        "wait; if the operation hangs, end it, or delete the VM yourself",
        "with the name of a VM",
    ),
    EventText(
        "ScaleInHeld",
        "KubeVirt snapshots, restores, backs up or migrates this VM, or attaches a disk, so vmherd does not "
        "delete it now",
        "wait; if the operation hangs, end it, or delete the VM yourself",
        "with the name of a VM",
    ),
    EventText(
        "TakeoverHeld",
        "in takeover mode, the first update of a pool would restart VMs, or delete them with their disks",
        "read the differences; then annotate the pool with `vmherd.dev/takeover=proceed`, or change its template",
    ),
    EventText(
        "SecondWriter",
        "another controller works on the same objects, so vmherd writes nothing; the message names the controller",
        "stop KubeVirt's loops with `vmherd takeover`, or stop one vmherd",
    ),
    EventText("SecondWriterGone", "the other controller has stopped, and vmherd writes again", "nothing"),
)
