"""The order in which a replica set deletes VMIs, for scale-in and for the replacement of outdated VMIs (R6).

The sort key is a tuple with one element for each criterion. The last element is the name of the VMI, so the order is
the same in every reconciliation.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from operator import itemgetter
from typing import TypeAlias

from controller.apimachinery.field_error import FieldError
from controller.kubevirt.annotations import PROTECT, REMOVE, deletion_cost, is_marked
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_migrating, is_ready, is_running, node_of, ready_since

StateRank: TypeAlias = tuple[bool, bool, bool, bool, bool, int]
AgeRank: TypeAlias = tuple[float, float, str]

_by_rank = itemgetter(0)


def rank_for_removal(active: Iterable[VirtualMachineInstance]) -> tuple[VirtualMachineInstance, ...]:
    """Return the active VMIs that may be deleted, in the order of deletion.

    The result contains no protected VMIs. But `active` must contain the protected VMIs, because they count in the
    number of VMIs on a node.

    The sort criteria are, in this order: removal mark, state, deletion cost, number of VMIs on the node, age.
    """
    vmis = tuple(active)
    vmis_per_node = Counter(map(node_of, vmis))
    by_node: defaultdict[str, list[tuple[tuple[StateRank, AgeRank], VirtualMachineInstance]]] = defaultdict(list)
    for vmi in vmis:
        if not is_marked(vmi.metadata, PROTECT):
            by_node[node_of(vmi)].append(((state_rank_of(vmi), age_rank_of(vmi)), vmi))
    ranked = []
    for node, candidates in by_node.items():
        candidates.sort(key=_by_rank)
        # The count of a node decreases by one for each candidate on the node. So nodes with more VMIs lose VMIs first.
        for negative_count, ((state_rank, age_rank), vmi) in enumerate(candidates, start=-vmis_per_node[node]):
            ranked.append(((state_rank, negative_count, age_rank), vmi))
    ranked.sort(key=_by_rank)
    return tuple(vmi for _, vmi in ranked)


def state_rank_of(vmi: VirtualMachineInstance) -> StateRank:
    """Return the first part of the sort key: in R6, the criteria before "VMIs on the same node".

    The VMI with the smaller key is deleted first.
    """
    cost = deletion_cost(vmi.metadata)
    return (
        not is_marked(vmi.metadata, REMOVE),
        node_of(vmi) != "",
        is_running(vmi),
        is_ready(vmi),
        not is_migrating(vmi),
        0 if isinstance(cost, FieldError) else cost,
    )


def age_rank_of(vmi: VirtualMachineInstance) -> AgeRank:
    """Return the last part of the sort key: in R6, the criteria after "VMIs on the same node".

    The VMI that became ready later is deleted first. If two VMIs became ready at the same time, the younger VMI is
    deleted first.
    """
    since, created = ready_since(vmi), vmi.metadata.creation_timestamp
    return (
        -since.timestamp() if since is not None else 0.0,
        -created.timestamp() if created is not None else 0.0,
        vmi.metadata.name,
    )
