"""The pool's own finalizer, and what happens when the pool is deleted (P6).

The pool carries the finalizer before it has its first VM. When it is deleted, its VMs lose ours, and then the pool
does; the garbage collector does the rest. With `--cascade=orphan` the VMs stay, and their disks stay theirs.

Nothing that a user asked to keep is garbage collected here either. A VM whose disks are to outlive it cannot be left to
the collector, since only a VM that is being deleted loses its disks (P10): it is deleted by us, and let go after that.
Only with `--cascade=foreground` nothing can be kept, because that deletes disks before VMs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from controller.apimachinery.finalizers import addition_patch, removal_patch
from controller.kubevirt.annotations import POOL_FINALIZER
from controller.kubevirt.resources import VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import is_deleting, is_held
from controller.pool.claims import by_name, let_go, let_strays_go
from controller.pool.disks import asks_to_preserve, holds, is_safe
from controller.pool.snapshot import Snapshot
from controller.runtime.plan import Delete, Patch, Plan, Stage
from informers.objects import PatchType

ORPHAN: Final = "orphan"
"""The garbage collector's finalizer on an owner whose dependents are to stay."""


def has_finalizer(snapshot: Snapshot) -> bool:
    return POOL_FINALIZER in (snapshot.owner.metadata.finalizers or ())


def plan_own_finalizer(snapshot: Snapshot) -> Plan:
    """Put our finalizer on the pool, before anything that it has to wait for exists."""
    if has_finalizer(snapshot):
        return Plan()
    meta = snapshot.owner.metadata
    body = addition_patch(meta, POOL_FINALIZER)
    patch = Patch(resource=snapshot.pools, key=meta.key, body=body, type=PatchType.MERGE, why="VMs are to follow")
    return Plan(stages=(Stage((patch,)),))


def plan_deletion(snapshot: Snapshot) -> Plan:
    """Let the VMs go, then the pool. Where there are more than a pass may write, the pool waits for the next."""
    preserve = asks_to_preserve(snapshot)
    members = by_name(snapshot.members)
    must_go = preserve and ORPHAN not in (snapshot.owner.metadata.finalizers or ())
    free = [vm for vm in members if is_held(vm) and (is_deleting(vm) or not must_go)]
    doomed = [vm for vm in members if must_go and not is_deleting(vm)][: snapshot.limits.burst]
    stages = (
        *let_go(snapshot, free, preserve=preserve),
        *let_strays_go(snapshot, preserve=preserve),
        *holds(vm for vm in doomed if not is_safe(snapshot, vm)),
        *_deletes(snapshot, [vm for vm in doomed if is_safe(snapshot, vm)]),
    )
    # The pool goes in the pass that finds nobody held: only then it is known that all of them were let go.
    if has_finalizer(snapshot) and not stages:
        stages = (Stage((_own_removal(snapshot),)),)
    return Plan(stages=stages, held="being deleted")


def _deletes(snapshot: Snapshot, vms: Iterable[VirtualMachine]) -> tuple[Stage, ...]:
    """Delete these, but only if the server still knows all of them as the pool's.

    The pool may have been orphaning them until a moment ago, in which case our cache of pools can show that it is done
    while our cache of VMs does not.
    """
    vms = tuple(vms)
    if not vms:
        return ()
    why = "its pool is being deleted"
    guards = tuple(
        Patch(
            resource=VMS, key=vm.metadata.key, body=_ownership_test(snapshot, vm), type=PatchType.JSON, why=f"if {why}"
        )
        for vm in vms
    )
    deletes = tuple(Delete(resource=VMS, key=vm.metadata.key, uid=vm.metadata.uid, why=why) for vm in vms)
    return (Stage(guards), Stage(deletes, essential=False))


def _ownership_test(snapshot: Snapshot, vm: VirtualMachine) -> bytes:
    """A JSON patch that changes nothing, and fails where the VM has another UID or owner."""
    uid = snapshot.owner.metadata.uid
    owners = [reference.uid for reference in vm.metadata.owner_references or ()]
    place = f"/metadata/ownerReferences/{owners.index(uid)}/uid"
    tests = {"/metadata/uid": vm.metadata.uid, place: uid}
    return msgspec.json.encode([{"op": "test", "path": path, "value": value} for path, value in tests.items()])


def _own_removal(snapshot: Snapshot) -> Patch:
    meta = snapshot.owner.metadata
    body, why = removal_patch(meta, POOL_FINALIZER), "all its VMs were let go"
    return Patch(resource=snapshot.pools, key=meta.key, body=body, type=PatchType.JSON, why=why)
