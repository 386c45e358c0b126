"""The order in which a replica set deletes VMIs, for scale-in and for the replacement of outdated VMIs (R6).

The sort key is a tuple with one element for each criterion. The last element is the name of the VMI, so the order is
the same in every reconciliation.
"""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from itertools import groupby, islice
from typing import TypeAlias

from controller.kubevirt.annotations import REMOVE, is_marked, is_protected
from controller.kubevirt.busy import busy_reason
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_migrating, is_paused, is_ready, is_running, node_of, ready_since
from controller.replicas.crowded import from_crowded_nodes
from controller.replicas.draining import is_draining
from controller.replicas.settings import deletion_cost
from controller.replicaset.traits import VMIs
from controller.runtime.members.groups import Group, Members

StateRank: TypeAlias = tuple[bool, bool, bool, bool, bool, bool, bool, bool, int]
AgeRank: TypeAlias = tuple[float, float, str]


def rank_for_removal(active: VMIs, now: datetime) -> tuple[VirtualMachineInstance, ...]:
    """Return the VMIs that may be deleted, in order. The protected ones of `active` count on their nodes.

    The criteria are, in this order: drain, removal mark, work, state, deletion cost, VMIs on the node, age.
    """
    return tuple(_in_order(active, now))


def first_for_removal(active: VMIs, number: int, now: datetime) -> tuple[VirtualMachineInstance, ...]:
    """Return the first VMIs in the order of deletion, at most `number`. The other VMIs are not sorted."""
    return tuple(islice(_in_order(_without_last_waiting(active, number, now), now), number))


def _without_last_waiting(active: VMIs, number: int, now: datetime) -> VMIs:
    """Leave out those that wait for a node after `number` others: for them, all criteria but names are traits."""
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
    ranks: defaultdict[StateRank, list[VirtualMachineInstance]] = defaultdict(list)
    protected = active.where(lambda vmi: is_protected(vmi.metadata))
    for group in active.groups:
        if not is_protected(group.traits.metadata):
            ranks[state_rank_of(group.traits, now)] += group
    return from_crowded_nodes(ranks, protected, key=age_rank_of, node_of=node_of)


def state_rank_of(vmi: VirtualMachineInstance, now: datetime) -> StateRank:
    """Return the criteria of R6 before "VMIs on the same node". An unreadable VMI is the last (P20), and draining ones
    are the first (P26). With the same mark, busy ones are last (P24).
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
    """Return the criteria of R6 after "VMIs on the same node": the VMI that is ready or exists later goes first."""
    since, created = ready_since(vmi), vmi.metadata.creation_timestamp
    return (
        -since.timestamp() if since is not None else 0.0,
        -created.timestamp() if created is not None else 0.0,
        vmi.metadata.name,
    )
