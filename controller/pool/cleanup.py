"""The pools' part of `vmherd cleanup`: the removal of the pool finalizer while no controller runs."""

from collections.abc import Iterable

from controller.kubevirt.annotations import POOL_FINALIZER
from controller.kubevirt.pool_types import POOL_KIND, Pool
from controller.kubevirt.resources import VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import has_pool_finalizer, is_deleting
from controller.pool.leaving.deletion import ORPHAN
from controller.pool.leaving.disks import owner_removals, remove_finalizer
from controller.pool.spec.policies import keeps_disks
from controller.runtime.actions import Plan, stage_of
from controller.runtime.result import Cleanup
from informers.meta import controller_of
from informers.resource import Resource


def plan_cleanup(
    pools: Iterable[Pool], vms: Iterable[VirtualMachine], resource: Resource[Pool], *, force: bool
) -> Cleanup:
    """Plan patches that remove the pool finalizer from these pools and VMs (P16).

    The patches change disks first, then VMs, then pools. The caller passes the pools that have the finalizer, and the
    VMs that have the finalizer or belong to one of these pools. Without `force`, a pool and its VMs are skipped if the
    VMs would lose disks that the pool must keep.
    """
    by_uid = {pool.metadata.uid: pool for pool in pools}
    vms = [vm for vm in vms if not _is_of_another_group(vm, resource.group)]
    needs_controller = {uid for vm in vms if (uid := _owner_uid(vm)) and _needs_controller(by_uid.get(uid), vm)}
    skipped = set() if force else needs_controller
    to_release = [vm for vm in vms if has_pool_finalizer(vm) and _owner_uid(vm) not in skipped]
    deleting_disks = {uid for uid, pool in by_uid.items() if not keeps_disks(pool.spec)}
    disks_to_keep = [vm for vm in to_release if is_deleting(vm) and _owner_uid(vm) not in deleting_disks]
    why = f"removes {POOL_FINALIZER}"
    of_pools = (remove_finalizer(resource, pool.metadata, why) for uid, pool in by_uid.items() if uid not in skipped)
    stages = (
        *stage_of(owner_removals(disks_to_keep)),
        *stage_of((remove_finalizer(VMS, vm.metadata, why) for vm in to_release), essential=True),
        *stage_of(of_pools, essential=True),
    )
    return Cleanup(Plan(stages=stages), tuple(by_uid[uid].metadata.key for uid in by_uid if uid in skipped))


def _is_of_another_group(vm: VirtualMachine, group: str) -> bool:
    """KubeVirt's own pool controller uses the same finalizer, so the one of such a VM belongs to that controller."""
    owner = controller_of(vm.metadata)
    return owner is not None and owner.kind == POOL_KIND and owner.api_version.partition("/")[0] != group


def _owner_uid(vm: VirtualMachine) -> str:
    owner = controller_of(vm.metadata)
    return owner.uid if owner is not None and owner.kind == POOL_KIND else ""


def _needs_controller(pool: Pool | None, vm: VirtualMachine) -> bool:
    """Return True if the pool must keep the VM's disks, but the cleanup cannot: the pool is being deleted without
    `--cascade=orphan`, so the garbage collector deletes the VM with its disks. The cleanup keeps the disks of a VM that
    is terminating already, because it removes the VM's ownerReference from each disk.
    """
    if pool is None or pool.metadata.deletion_timestamp is None or is_deleting(vm):
        return False
    return keeps_disks(pool.spec) and ORPHAN not in (pool.metadata.finalizers or ())
