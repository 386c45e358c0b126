"""Who is chosen first among a pool's VMs: selectors say who may be, sort policies in which order (P8, P13).

"Random" is a rank, not a lot: each VM has its place by a hash of the pool, its generation and the VM. So the same
snapshot gives the same choice, a retry meets the same victims, and over many pools the choice is even.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, assert_never

from msgspec import Struct

from controller.apimachinery.field_error import FieldError
from controller.kubevirt.annotations import PROTECT, REMOVE, deletion_cost, is_marked
from controller.kubevirt.costs import malformed_costs
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import is_ready, node_selector_of, template_labels_of
from controller.pool.policies import Selection, Sort
from controller.pool.snapshot import Snapshot
from controller.runtime.plan import Notice

SortKey = Callable[[VirtualMachine], tuple[Any, ...]]


class Candidates(Struct, frozen=True):
    """Those that may be deleted, first to go first; how many must stay, and why; and what to tell their users."""

    ranked: tuple[VirtualMachine, ...]
    protected: int
    unselected: int
    notices: tuple[Notice, ...] = ()


def allows(selection: Selection, vm: VirtualMachine) -> bool:
    """Whether the selectors, all that are given, match this VM's template."""
    if selection.labels is not None and not selection.labels.matches(template_labels_of(vm)):
        return False
    return selection.nodes is None or selection.nodes.matches(node_selector_of(vm))


def in_order(snapshot: Snapshot, selection: Selection, vms: Iterable[VirtualMachine]) -> list[VirtualMachine]:
    """The VMs by the sort policy alone."""
    return sorted(vms, key=_sort_key(snapshot, selection.sort))


def choose_for_removal(snapshot: Snapshot, selection: Selection, vms: Iterable[VirtualMachine]) -> Candidates:
    """Who goes first: marked for removal, then the cheaper, then by the sort policy (P8). Protected ones never go."""
    key = _sort_key(snapshot, selection.sort)
    vms = tuple(vms)
    allowed = [vm for vm in vms if allows(selection, vm)]
    free = [vm for vm in allowed if not is_marked(vm.metadata, PROTECT)]
    ranked = sorted(free, key=lambda vm: (not is_marked(vm.metadata, REMOVE), _cost(vm), key(vm)))
    return Candidates(tuple(ranked), len(allowed) - len(free), len(vms) - len(allowed), malformed_costs(free))


def _cost(vm: VirtualMachine) -> int:
    cost = deletion_cost(vm.metadata)
    return 0 if isinstance(cost, FieldError) else cost


def _sort_key(snapshot: Snapshot, sort: Sort) -> SortKey:
    def place(vm: VirtualMachine) -> tuple[int, str]:
        ordinal = snapshot.ordinal_of(vm)
        return (-1 if ordinal is None else ordinal, vm.metadata.name)

    def age(vm: VirtualMachine) -> float:
        created = vm.metadata.creation_timestamp
        return created.timestamp() if created is not None else 0.0

    owner = snapshot.owner.metadata
    seed = f"{owner.uid}/{owner.generation}/"

    def lot(vm: VirtualMachine) -> bytes:
        return blake2b((seed + vm.metadata.uid).encode("utf-8", "surrogatepass"), digest_size=8).digest()

    match sort:
        case Sort.ASCENDING:
            return place
        case Sort.DESCENDING:
            return lambda vm: (-place(vm)[0], vm.metadata.name)
        case Sort.NEWEST:
            return lambda vm: (-age(vm), -place(vm)[0], vm.metadata.name)
        case Sort.OLDEST:
            return lambda vm: (age(vm), *place(vm))
        case Sort.RANDOM:
            return lambda vm: (lot(vm), vm.metadata.name)
        case Sort.UNSTATED:
            return lambda vm: (is_ready(vm), lot(vm), vm.metadata.name)
        case _:
            assert_never(sort)
