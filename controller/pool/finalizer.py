"""The pool's own finalizer, and what happens when the pool is deleted (P6).

The pool carries the finalizer before it has its first VM. When it is deleted, its VMs lose ours, and then the pool
does; the garbage collector does the rest. Disks that were to be preserved outlive their VMs here too: nothing that a
user asked to keep is ever garbage collected. With `--cascade=orphan` the VMs stay, and their disks stay theirs.
"""

from __future__ import annotations

from typing import Final

import msgspec

from controller.kubevirt.finalizers import addition_patch
from controller.kubevirt.flaw import Flaw
from controller.kubevirt.machines import is_deleting, is_held
from controller.kubevirt.markers import POOL_FINALIZER
from controller.planning import Patch, PatchType, Plan, Stage
from controller.pool.claims import by_name, let_go, let_strays_go
from controller.pool.policies import parse_scale_in
from controller.pool.snapshot import Snapshot

ORPHAN: Final = "orphan"
"""The garbage collector's finalizer on an owner whose dependents are to stay."""


def has_finalizer(snapshot: Snapshot) -> bool:
    return POOL_FINALIZER in (snapshot.owner.metadata.finalizers or ())


def asks_to_preserve(snapshot: Snapshot) -> bool:
    """Whether disks are to outlive their VMs. Where nobody can tell, they are: what is kept can still be deleted."""
    scale_in = parse_scale_in(snapshot.owner.spec)
    return isinstance(scale_in, Flaw) or scale_in.preserve


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
    orphaned = ORPHAN in (snapshot.owner.metadata.finalizers or ())
    held = [vm for vm in by_name(snapshot.members) if is_held(vm)]
    batch = held[: snapshot.limits.burst]
    keeping = [vm for vm in batch if preserve and (is_deleting(vm) or not orphaned)]
    losing = [vm for vm in batch if vm not in keeping]
    stages = (*let_go(keeping, preserve=True), *let_go(losing, preserve=False), *let_strays_go(snapshot))
    # The pool goes in the pass that finds nobody held: only then it is known that all of them were let go.
    if has_finalizer(snapshot) and not stages:
        stages = (Stage((_own_removal(snapshot),)),)
    return Plan(stages=stages, held="being deleted")


def _own_removal(snapshot: Snapshot) -> Patch:
    """A merge patch: nothing else writes a pool often, and its resourceVersion ties it to what was seen."""
    meta = snapshot.owner.metadata
    finalizers = [finalizer for finalizer in meta.finalizers or () if finalizer != POOL_FINALIZER]
    fields = {"uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": finalizers}
    body = msgspec.json.encode({"metadata": fields})
    return Patch(resource=snapshot.pools, key=meta.key, body=body, type=PatchType.MERGE, why="all its VMs were let go")
