"""The traits of the VMIs of a set. VMIs with equal traits are in one group of `Members`.

The traits contain no names, because each VMI would have its own group. Only the traits of a terminating VMI, and of an
active VMI that is not ready, contain times. The times have whole seconds, so the VMIs of a burst have few groups. Ready
VMIs of all ages have one group. So a decision that depends on a name, or on the age of a ready VMI, must read each VMI
of a group.
"""

from collections.abc import Hashable, Iterable
from typing import Final

from controller.apimachinery.conditions import with_timezone
from controller.apimachinery.label_selectors import Selector
from controller.kubevirt.annotations import DELETION_COST, EARLY_FAILURES, REMOVE, is_protected
from controller.kubevirt.busy import busy_mark
from controller.kubevirt.problems import is_booting, obstacle_of_vmi
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import entered, is_migrating, is_paused, is_ready, is_spent, node_of, unready_since
from controller.replicas.catalogue import Place
from controller.replicas.draining import drain_marks
from controller.replicas.wrong_annotations import Wrong, wrong_on
from controller.runtime.members.groups import Members, grouped
from informers.meta import annotations_of, labels_of

VMIs = Members[VirtualMachineInstance]

NODE_LABELS: Final = frozenset({"kubevirt.io/nodeName", "kubevirt.io/migrationTargetNodeName"})
"""Labels that KubeVirt sets on a VMI. They differ from node to node, so they are no traits."""


def traits_of(vmi: VirtualMachineInstance) -> Hashable:
    """Return the labels without `NODE_LABELS`, the state, and the annotations that decisions need."""
    labels = tuple([item for item in labels_of(vmi.metadata).items() if item[0] not in NODE_LABELS])
    status, annotations = vmi.status, vmi.metadata.annotations
    deleted, ready, spent = vmi.metadata.deletion_timestamp, is_ready(vmi), is_spent(vmi)
    return (
        labels,
        deleted,
        status.phase if status is not None else None,
        ready,
        spent,
        is_paused(vmi),
        not vmi.undecodable,
        None
        if not annotations
        else (
            is_protected(vmi.metadata),
            busy_mark(vmi.metadata),
            drain_marks(vmi.metadata),
            replaces_failure(vmi),
            wrong_on_vmi(vmi),
        ),
        _wait_of(vmi) if deleted is None and not ready and not spent else None,
    )


def _wait_of(vmi: VirtualMachineInstance) -> Hashable:
    """Return the facts that decisions need about an active VMI that is not ready: when the VMI became unready, whether
    the VMI has a problem, and the criteria for its deletion.

    The time of the condition `Ready` is a trait only if `vmi_stuck_since` reads this time. During the start of the VMI,
    KubeVirt changes this time with each new reason. After the start, the creation time is no trait, because VMIs of
    many ages can lose their readiness in the same second.
    """
    status, annotations, has_node = vmi.status, vmi.metadata.annotations, node_of(vmi) != ""
    timed = status is not None and status.phase_transition_timestamps is not None
    created, unready = with_timezone(vmi.metadata.creation_timestamp), unready_since(vmi)
    changed = unready if not timed or entered(vmi, "Running") is not None else None
    started = has_node and not annotations and created is not None and changed is not None and created <= changed
    return (
        None if started else created,
        changed,
        is_booting(vmi, unready),
        obstacle_of_vmi(vmi) is not None,
        has_node,
        is_migrating(vmi),
        tuple(map(annotations.get, (EARLY_FAILURES, REMOVE, DELETION_COST))) if annotations else None,
    )


def group_vmis(vmis: Iterable[VirtualMachineInstance]) -> VMIs:
    return grouped(vmis, traits_of)


def split_by_selector(vmis: VMIs, selector: Selector) -> tuple[VMIs, VMIs]:
    """Return the VMIs whose labels match the selector, and the other VMIs. Terminating VMIs count as matching."""

    def stays(vmi: VirtualMachineInstance) -> bool:
        return vmi.metadata.deletion_timestamp is not None or selector.matches(labels_of(vmi.metadata))

    if not NODE_LABELS.isdisjoint((*selector.needed, *selector.refused)):
        vmis = grouped(vmis, lambda vmi: (stays(vmi), traits_of(vmi)))
    return vmis.where(stays), vmis.where(lambda vmi: not stays(vmi))


def name_of(vmi: VirtualMachineInstance) -> str:
    return vmi.metadata.name


def replaces_failure(vmi: VirtualMachineInstance) -> bool:
    """Return True if the VMI has the annotation of a replacement of an early failure (R4a)."""
    return EARLY_FAILURES in annotations_of(vmi.metadata)


def wrong_on_vmi(vmi: VirtualMachineInstance) -> tuple[Wrong, ...]:
    """Return the wrong annotations of the VMI (P23)."""
    return wrong_on(vmi.metadata, Place.VMI)
