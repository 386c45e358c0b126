"""Selection among a pool's VMs: selectors limit the choice, and sort policies decide the order (P8, P13).

The random order sorts the VMs by a hash of the pool's UID, the pool's generation and the VM's UID. So the same snapshot
gives the same order, and a retry chooses the same VMs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from heapq import nsmallest
from typing import Any, assert_never

from msgspec import Struct

from controller.apimachinery.field_error import FieldError
from controller.kubevirt.annotations import PROTECT, REMOVE, deletion_cost, is_marked
from controller.kubevirt.costs import malformed_costs
from controller.kubevirt.delicate import delicate_reason
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import is_ready, node_selector_of, template_labels_of
from controller.pool.policies import Selection, Sort
from controller.pool.snapshot import Snapshot
from controller.runtime.plan import Notice

SortKey = Callable[[VirtualMachine], tuple[Any, ...]]


class Candidates(Struct, frozen=True):
    """The candidates for deletion.

    - `ranked`: the first candidates, in the order of deletion.
    - `deletable`: the number of all candidates.
    - `delicate`: the VMs that must not be deleted now. The key is the UID of the VM, and the value is the reason.
    - `protected`: the number of VMs with a protecting annotation.
    - `unselected`: the number of VMs that the selectors do not match.
    - `notices`: warnings about invalid deletion costs.
    """

    ranked: tuple[VirtualMachine, ...]
    deletable: int
    delicate: Mapping[str, str]
    protected: int
    unselected: int
    notices: tuple[Notice, ...] = ()


def allows(selection: Selection, vm: VirtualMachine) -> bool:
    """Return True if all selectors of the selection match the VM.

    The selectors are compared with the VMI template in the VM's spec, not with the VM's own labels.
    """
    if selection.labels is not None and not selection.labels.matches(template_labels_of(vm)):
        return False
    return selection.nodes is None or selection.nodes.matches(node_selector_of(vm))


def in_order(snapshot: Snapshot, selection: Selection, vms: Iterable[VirtualMachine]) -> list[VirtualMachine]:
    """Return the VMs in the order of the sort policy. Annotations on the VMs do not change this order."""
    return sorted(vms, key=_sort_key(snapshot, selection.sort))


def choose_for_removal(
    snapshot: Snapshot, selection: Selection, vms: Iterable[VirtualMachine], *, most: int | None = None
) -> Candidates:
    """Return the candidates for a deletion, in the order of deletion (P8). With `most`, only the first are ranked.

    Protected VMs and VMs that the selectors do not match are left out. VMs that a user marked for removal come first.
    The other VMs are sorted by deletion cost, lowest first. The sort policy orders VMs with the same cost. VMs whose
    deletion must wait come last (see `delicate_reason`), even if a user marked these VMs.
    """
    key = _sort_key(snapshot, selection.sort)
    vms = tuple(vms)
    allowed = [vm for vm in vms if allows(selection, vm)]
    unprotected = [vm for vm in allowed if not is_marked(vm.metadata, PROTECT)]
    reasons = ((vm.metadata.uid, delicate_reason(vm, snapshot.vmi_of(vm))) for vm in unprotected)
    delicate = {uid: reason for uid, reason in reasons if reason}

    def rank(vm: VirtualMachine) -> tuple[Any, ...]:
        return (vm.metadata.uid in delicate, not is_marked(vm.metadata, REMOVE), _cost(vm), key(vm))

    return Candidates(
        ranked=tuple(sorted(unprotected, key=rank) if most is None else nsmallest(most, unprotected, key=rank)),
        deletable=len(unprotected),
        delicate=delicate,
        protected=len(allowed) - len(unprotected),
        unselected=len(vms) - len(allowed),
        notices=malformed_costs(unprotected),
    )


def _cost(vm: VirtualMachine) -> int:
    cost = deletion_cost(vm.metadata)
    return 0 if isinstance(cost, FieldError) else cost


def _sort_key(snapshot: Snapshot, sort: Sort) -> SortKey:
    def by_ordinal(vm: VirtualMachine) -> tuple[int, str]:
        ordinal = snapshot.ordinal_of(vm)
        return (-1 if ordinal is None else ordinal, vm.metadata.name)

    def created_at(vm: VirtualMachine) -> float:
        created = vm.metadata.creation_timestamp
        return created.timestamp() if created is not None else 0.0

    owner = snapshot.owner.metadata
    seed = f"{owner.uid}/{owner.generation}/"

    def hash_rank(vm: VirtualMachine) -> bytes:
        return blake2b((seed + vm.metadata.uid).encode("utf-8", "surrogatepass"), digest_size=8).digest()

    match sort:
        case Sort.ASCENDING:
            return by_ordinal
        case Sort.DESCENDING:
            return lambda vm: (-by_ordinal(vm)[0], vm.metadata.name)
        case Sort.NEWEST:
            return lambda vm: (-created_at(vm), -by_ordinal(vm)[0], vm.metadata.name)
        case Sort.OLDEST:
            return lambda vm: (created_at(vm), *by_ordinal(vm))
        case Sort.RANDOM:
            return lambda vm: (hash_rank(vm), vm.metadata.name)
        case Sort.UNSTATED:
            return lambda vm: (is_ready(vm), hash_rank(vm), vm.metadata.name)
        case _:
            assert_never(sort)
