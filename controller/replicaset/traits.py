"""The traits of the VMIs of a set. VMIs with equal traits are in one group of `Members`.

The traits contain no names and no times, because almost every VMI would have its own group. So a decision that depends
on a name or a time must read each VMI of a group.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from controller.apimachinery.label_selectors import Selector
from controller.kubevirt.annotations import DELETION_COST, EARLY_FAILURES, PROTECT, is_marked
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_ready, is_spent
from controller.runtime.members import Members, grouped
from informers.meta import annotations_of, labels_of

VMIs = Members[VirtualMachineInstance]

NODE_LABELS: Final = frozenset({"kubevirt.io/nodeName", "kubevirt.io/migrationTargetNodeName"})
"""Labels that KubeVirt sets on a VMI. They differ from node to node, so they are no traits."""


def traits_of(vmi: VirtualMachineInstance) -> Hashable:
    """Return the labels without `NODE_LABELS`, the state, and the annotations that decisions need."""
    labels = tuple([item for item in labels_of(vmi.metadata).items() if item[0] not in NODE_LABELS])
    status, annotations = vmi.status, vmi.metadata.annotations
    return (
        labels,
        vmi.metadata.deletion_timestamp is None,
        status.phase if status is not None else None,
        is_ready(vmi),
        is_spent(vmi),
        not vmi.undecodable,
        None if not annotations else (is_protected(vmi), replaces_failure(vmi), has_deletion_cost(vmi)),
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


def is_protected(vmi: VirtualMachineInstance) -> bool:
    return is_marked(vmi.metadata, PROTECT)


def replaces_failure(vmi: VirtualMachineInstance) -> bool:
    """Return True if the VMI has the annotation of a replacement of an early failure (R4a)."""
    return EARLY_FAILURES in annotations_of(vmi.metadata)


def has_deletion_cost(vmi: VirtualMachineInstance) -> bool:
    return DELETION_COST in annotations_of(vmi.metadata)
