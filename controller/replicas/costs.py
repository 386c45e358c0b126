"""The deletion cost of a VM or VMI (R6, P8)."""

from __future__ import annotations

from controller.kubevirt.annotations import DELETION_COST
from controller.replicas.wrong_annotations import setting
from informers.meta import ObjectMeta


def deletion_cost(meta: ObjectMeta) -> int:
    """Return the deletion cost of a VM or VMI. Without a valid annotation, the cost is 0.

    When the number of replicas is reduced, VMs and VMIs with a lower cost are deleted first.
    """
    return int(setting(meta, DELETION_COST) or 0)
