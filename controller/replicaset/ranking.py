"""Who goes first when a set has too many, or replaces the outdated (R6).

The order is one key, compared criterion by criterion; the name comes last, so it is total and the same in every pass.
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

Worth: TypeAlias = tuple[bool, bool, bool, bool, bool, int]
Seniority: TypeAlias = tuple[float, float, str]

_by_rank = itemgetter(0)


def rank_for_removal(active: Iterable[VirtualMachineInstance]) -> tuple[VirtualMachineInstance, ...]:
    """The active VMIs that may go, first to go first. Protected ones are not among them.

    `active` is all of them: protected ones crowd their nodes like any other. A VMI's rank is its worth, then how
    crowded its node is when its turn comes, then its seniority.
    """
    vmis = tuple(active)
    crowds = Counter(map(node_of, vmis))
    by_node: defaultdict[str, list[tuple[tuple[Worth, Seniority], VirtualMachineInstance]]] = defaultdict(list)
    for vmi in vmis:
        if not is_marked(vmi.metadata, PROTECT):
            by_node[node_of(vmi)].append(((worth_of(vmi), seniority_of(vmi)), vmi))
    ranked = []
    for node, residents in by_node.items():
        residents.sort(key=_by_rank)
        # Each one that goes leaves its node less crowded for the next, so taking many thins the fullest nodes first.
        for crowd, ((worth, seniority), vmi) in enumerate(residents, start=-crowds[node]):
            ranked.append(((worth, crowd, seniority), vmi))
    ranked.sort(key=_by_rank)
    return tuple(vmi for _, vmi in ranked)


def worth_of(vmi: VirtualMachineInstance) -> Worth:
    """R6's criteria before crowding. The smaller goes first, and False is smaller than True."""
    cost = deletion_cost(vmi.metadata)
    return (
        not is_marked(vmi.metadata, REMOVE),
        node_of(vmi) != "",
        is_running(vmi),
        is_ready(vmi),
        not is_migrating(vmi),
        0 if isinstance(cost, FieldError) else cost,
    )


def seniority_of(vmi: VirtualMachineInstance) -> Seniority:
    """R6's criteria after crowding: the later it became ready, and the later it was made, the sooner it goes."""
    since, created = ready_since(vmi), vmi.metadata.creation_timestamp
    return (
        -since.timestamp() if since is not None else 0.0,
        -created.timestamp() if created is not None else 0.0,
        vmi.metadata.name,
    )
