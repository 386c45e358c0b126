"""The order in which a replica set deletes VMIs, for scale-in and for the replacement of outdated VMIs (R6).

The sort key is a tuple with one element for each criterion. The last element is the name of the VMI, so the order is
the same in every reconciliation.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from heapq import heapify, heappop, heapreplace
from itertools import groupby, islice
from typing import TypeAlias

from controller.kubevirt.annotations import REMOVE, is_marked, is_protected
from controller.kubevirt.busy import busy_reason
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_migrating, is_paused, is_ready, is_running, node_of, ready_since
from controller.replicas.draining import is_draining
from controller.replicas.settings import deletion_cost
from controller.replicaset.traits import VMIs
from controller.runtime.members.groups import Group, Members

StateRank: TypeAlias = tuple[bool, bool, bool, bool, bool, bool, bool, bool, int]
AgeRank: TypeAlias = tuple[float, float, str]


def rank_for_removal(active: VMIs, now: datetime) -> tuple[VirtualMachineInstance, ...]:
    """Return the active VMIs that may be deleted, in the order of deletion.

    The result contains no protected VMIs. But `active` must contain the protected VMIs, because they count in the
    number of VMIs on a node.

    The sort criteria are, in this order: drain, removal mark, work, state, deletion cost, VMIs on the node, age.
    """
    return tuple(_in_order(active, now))


def first_for_removal(active: VMIs, number: int, now: datetime) -> tuple[VirtualMachineInstance, ...]:
    """Return the first VMIs in the order of deletion, at most `number`. The other VMIs are not sorted."""
    return tuple(islice(_in_order(_without_last_waiting(active, number, now), now), number))


def _without_last_waiting(active: VMIs, number: int, now: datetime) -> VMIs:
    """Leave out VMIs that wait for a node and come after `number` others that wait.

    All criteria for these VMIs are traits, except the name. "Number of VMIs on the node" is no criterion for them,
    because the number is the same for all VMIs with an equal state.
    """
    waiting = active.where(_waits_for_node)
    if len(waiting) <= number:
        return active
    kept: list[Group[VirtualMachineInstance]] = []

    def rank(group: Group[VirtualMachineInstance]) -> tuple[StateRank, tuple[float, float]]:
        since, created, _ = age_rank_of(group.traits)
        return state_rank_of(group.traits, now), (since, created)

    for _, equal in groupby(sorted(waiting.groups, key=rank), key=rank):
        if sum(map(len, kept)) >= number:
            break
        kept += equal
    return active.where(lambda vmi: not _waits_for_node(vmi)) + Members(tuple(kept))


def _waits_for_node(vmi: VirtualMachineInstance) -> bool:
    if vmi.undecodable or is_protected(vmi.metadata):
        return False
    return node_of(vmi) == "" and not _ranks_as_ready(vmi)


def _ranks_as_ready(vmi: VirtualMachineInstance) -> bool:
    """Return True if the VMI is ready or paused. A paused VMI is not deleted first, although it is not ready (P20)."""
    return is_ready(vmi) or is_paused(vmi)


def _in_order(active: VMIs, now: datetime) -> Iterator[VirtualMachineInstance]:
    nodes: defaultdict[str, list[tuple[StateRank, AgeRank, VirtualMachineInstance]]] = defaultdict(list)
    vmis_per_node: Counter[str] = Counter()
    for group in active.groups:
        protected, state_rank = is_protected(group.traits.metadata), state_rank_of(group.traits, now)
        for vmi in group:
            node = node_of(vmi)
            vmis_per_node[node] += 1
            if not protected:
                nodes[node].append((state_rank, age_rank_of(vmi), vmi))
    # The count of a node decreases by one for each candidate on the node. So nodes with more VMIs lose VMIs first. The
    # rank of the next candidate on a node is never smaller, so the first candidate of each node is enough to continue.
    firsts = []
    for node, candidates in nodes.items():
        heapify(candidates)
        state_rank, age_rank, _ = candidates[0]
        firsts.append((state_rank, -vmis_per_node[node], age_rank, node))
    heapify(firsts)
    while firsts:
        _, negative_count, _, node = firsts[0]
        candidates = nodes[node]
        yield heappop(candidates)[2]
        if candidates:
            state_rank, age_rank, _ = candidates[0]
            heapreplace(firsts, (state_rank, negative_count + 1, age_rank, node))
        else:
            heappop(firsts)


def state_rank_of(vmi: VirtualMachineInstance, now: datetime) -> StateRank:
    """Return the first part of the sort key: in R6, the criteria before "VMIs on the same node".

    The VMI with the smaller key is deleted first. A VMI with an unreadable field is the last, because it is not deleted
    (P20). VMIs that drain are the first, so that every plan chooses the same ones (P26). Of the others with the same
    mark, the busy ones are the last (P24).
    """
    return (
        bool(vmi.undecodable),
        not is_draining(vmi.metadata),
        not is_marked(vmi.metadata, REMOVE),
        bool(busy_reason(vmi, now)),
        node_of(vmi) != "",
        is_running(vmi),
        _ranks_as_ready(vmi),
        not is_migrating(vmi),
        deletion_cost(vmi.metadata),
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
