"""What takes our finalizer off pools and VMs, after the controller is gone: the pool's part of `vmherd cleanup`."""

from __future__ import annotations

from collections.abc import Iterable

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.finalizers import removal_patch
from controller.kubevirt.annotations import POOL_FINALIZER
from controller.kubevirt.pool_types import POOL_KIND, Pool
from controller.kubevirt.resources import VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import is_deleting
from controller.pool.disks import disowns_of_left_behind
from controller.pool.finalizer import ORPHAN
from controller.pool.policies import parse_scale_in
from controller.runtime.plan import AnyResource, Cleanup, Patch, Plan, Stage
from informers.meta import ObjectMeta, controller_of
from informers.objects import PatchType
from informers.resource import Resource


def plan_cleanup(
    held_pools: Iterable[Pool], held_vms: Iterable[VirtualMachine], pools: Resource[Pool], *, force: bool
) -> Cleanup:
    """The patches that remove our finalizer from every object that has it: disks, then VMs, then pools (P16)."""
    by_uid = {pool.metadata.uid: pool for pool in held_pools}
    vms = [vm for vm in held_vms if not _is_of_another_group(vm, pools.group)]
    left = set() if force else {uid for vm in vms if (uid := _owner_uid(vm)) and _needs_controller(by_uid.get(uid), vm)}
    going = [vm for vm in vms if _owner_uid(vm) not in left]
    leaving = [vm for vm in going if is_deleting(vm) and _preserves(by_uid.get(_owner_uid(vm)))]
    stages = (
        Stage(disowns_of_left_behind(leaving), essential=False),
        Stage(tuple(_removal(VMS, vm.metadata) for vm in going)),
        Stage(tuple(_removal(pools, pool.metadata) for uid, pool in by_uid.items() if uid not in left)),
    )
    plan = Plan(stages=tuple(stage for stage in stages if stage.actions))
    return Cleanup(plan, tuple(by_uid[uid].metadata.key for uid in by_uid if uid in left))


def _is_of_another_group(vm: VirtualMachine, group: str) -> bool:
    """Whether a pool of another controller has it: KubeVirt's finalizer has the same name."""
    owner = controller_of(vm.metadata)
    return owner is not None and owner.kind == POOL_KIND and owner.api_version.partition("/")[0] != group


def _owner_uid(vm: VirtualMachine) -> str:
    owner = controller_of(vm.metadata)
    return owner.uid if owner is not None and owner.kind == POOL_KIND else ""


def _preserves(pool: Pool | None) -> bool:
    """Whether disks are to outlive their VMs. Where nobody can tell, they are: what is kept can still be deleted."""
    scale_in = parse_scale_in(pool.spec) if pool is not None else None
    return scale_in is None or isinstance(scale_in, FieldError) or scale_in.preserve


def _needs_controller(pool: Pool | None, vm: VirtualMachine) -> bool:
    """Whether the VM is going to be deleted with its pool, and its disks with it, although they are to be kept."""
    if pool is None or pool.metadata.deletion_timestamp is None or is_deleting(vm):
        return False
    return _preserves(pool) and ORPHAN not in (pool.metadata.finalizers or ())


def _removal(resource: AnyResource, meta: ObjectMeta) -> Patch:
    return Patch(
        resource=resource,
        key=meta.key,
        body=removal_patch(meta, POOL_FINALIZER),
        type=PatchType.JSON,
        why=f"take {POOL_FINALIZER} off",
        after_owner=meta.uid,
    )
