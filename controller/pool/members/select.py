"""Selection among a pool's VMs: selectors limit the choice, and sort policies decide the order (P8, P13).

The random order sorts the VMs by a hash of the pool's UID, the pool's generation and the VM's UID. So the same snapshot
gives the same order, and a retry chooses the same VMs.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from heapq import nsmallest
from itertools import islice
from typing import Any, assert_never

from msgspec import Struct

from controller.kubevirt import vmis
from controller.kubevirt.annotations import REMOVE, SUBSTITUTE, is_marked, is_protected, standby_mark
from controller.kubevirt.delicate import delicate_reason
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import is_ready, node_selector_of, template_labels_of
from controller.pool.members.machine import Machine, Machines
from controller.pool.members.snapshot import Snapshot
from controller.pool.spec.policies import Selection, Sort
from controller.replicas.crowded import from_crowded_nodes
from controller.replicas.draining import is_draining
from controller.replicas.settings import deletion_cost

SortKey = Callable[[Machine], tuple[Any, ...]]


class Candidates(Struct, frozen=True):
    """The candidates for deletion.

    - `ranked`: the first candidates, in the order of deletion.
    - `deletable`: the number of all candidates.
    - `delicate`: the reasons of the VMs that must not be deleted now, by UID.
    - `protected`: the VMs with a protecting annotation.
    - `unselected`: the number of VMs that the selectors do not match.
    """

    ranked: tuple[Machine, ...]
    deletable: int
    delicate: Mapping[str, str]
    protected: Machines
    unselected: int


def allows(selection: Selection, vm: VirtualMachine) -> bool:
    """The selectors are compared with the VMI template in the VM's spec, not with the VM's own labels."""
    if selection.labels is not None and not selection.labels.matches(template_labels_of(vm)):
        return False
    return selection.nodes is None or selection.nodes.matches(node_selector_of(vm))


def in_order(snapshot: Snapshot, selection: Selection, machines: Iterable[Machine]) -> list[Machine]:
    """Return the members in the order of the sort policy. Annotations on the VMs do not change this order."""
    return sorted(machines, key=_sort_key(snapshot, selection.sort))


def choose_for_removal(snapshot: Snapshot, selection: Selection, members: Machines, *, most: int) -> Candidates:
    """Return the candidates for a deletion, in the order of deletion (P8). At most `most` of them are ranked.

    Protected VMs and VMs that the selectors do not match are left out. The criteria are, in this order:

    1. VMs that drain come first, so that every plan chooses the same VMs (P26).
    2. Substitutes of lost VMs come next (P28).
    3. VMs that a user marked for removal come first.
    4. VMs whose deletion must wait come last (see `delicate_reason`).
    5. VMs that have just been standbys come first: they have not served yet (P32).
    6. Without a sort policy, VMs that are not ready come first. A sort policy of the user decides alone.
    7. VMs with a lower deletion cost come first.
    8. Without a sort policy, VMs on the node with the most VMs come first.
    9. The sort policy.
    """
    prefers_unready = selection.sort is Sort.UNSTATED
    allowed = members.where(lambda each: allows(selection, each.vm))
    unprotected = allowed.where(lambda each: not is_protected(each.metadata))
    delicate: dict[str, str] = {}
    ranks: defaultdict[tuple[Any, ...], list[Machine]] = defaultdict(list)
    for group in unprotected.groups:
        vm, vmi = group.traits.vm, group.traits.vmi
        reason = delicate_reason(vm, vmi, snapshot.now)
        delicate.update((each.metadata.uid, reason) for each in group if reason)
        first = not is_draining(vm.metadata), not is_marked(vm.metadata, SUBSTITUTE), not is_marked(vm.metadata, REMOVE)
        is_new, cost = bool(standby_mark(vm.metadata)), deletion_cost(vm.metadata)
        ranks[*first, bool(reason), not is_new, prefers_unready and is_ready(vm), cost] += group
    protected = allowed.where(lambda each: is_protected(each.metadata))
    others = protected + members.where(lambda each: not allows(selection, each.vm))
    return Candidates(
        ranked=tuple(_first(ranks, _sort_key(snapshot, selection.sort), others, sort=selection.sort, most=most)),
        deletable=len(unprotected),
        delicate=delicate,
        protected=protected,
        unselected=len(members) - len(allowed),
    )


def _first(
    ranks: Mapping[tuple[Any, ...], list[Machine]], key: SortKey, others: Machines, *, sort: Sort, most: int
) -> Iterator[Machine]:
    """Yield the first members by rank, and members with the same rank by key. `others` do not leave."""

    def node_of(machine: Machine) -> str:
        return vmis.node_of(machine.vmi) if machine.vmi is not None else ""

    if sort is Sort.UNSTATED:
        yield from islice(from_crowded_nodes(ranks, others, key=key, node_of=node_of), most)
        return
    for rank in sorted(ranks):
        first = nsmallest(most, ranks[rank], key=key)
        most -= len(first)
        yield from first


def _sort_key(snapshot: Snapshot, sort: Sort) -> SortKey:
    by_ordinal, owner = snapshot.rank_of, snapshot.owner.metadata
    seed = f"{owner.uid}/{owner.generation}/"

    def created_at(machine: Machine) -> float:
        created = machine.vm.metadata.creation_timestamp
        return created.timestamp() if created is not None else 0.0

    def hash_rank(machine: Machine) -> bytes:
        return blake2b((seed + machine.vm.metadata.uid).encode("utf-8", "surrogatepass"), digest_size=8).digest()

    match sort:
        case Sort.ASCENDING:
            return by_ordinal
        case Sort.DESCENDING:
            return lambda each: (-by_ordinal(each)[0], each.vm.metadata.name)
        case Sort.NEWEST:
            return lambda each: (-created_at(each), -by_ordinal(each)[0], each.vm.metadata.name)
        case Sort.OLDEST:
            return lambda each: (created_at(each), *by_ordinal(each))
        case Sort.RANDOM:
            return lambda each: (hash_rank(each), each.vm.metadata.name)
        case Sort.UNSTATED:
            return lambda each: (is_ready(each.vm), hash_rank(each), each.vm.metadata.name)
        case _:
            assert_never(sort)
