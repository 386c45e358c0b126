"""Assembles the controller of VirtualMachinePools from its informers, queue and rules."""

from __future__ import annotations

from controller.config.modes import Mode
from controller.kubevirt.merge_keys import VM_RULES
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMS, pool_resource
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.pool.rules import NAME, PoolRules
from controller.pool.snapshot import REVISION_INDEXES, VM_INDEXES, Limits, Stores
from controller.pool.triggers import pools_of_pool, pools_of_revision, pools_of_vm, pools_of_vmi
from controller.runtime.wiring import Assembly, Parts, assemble, queue_of, wakes
from informers.informer import SharedInformer


def assemble_pool(parts: Parts, vmis: SharedInformer[VirtualMachineInstance]) -> Assembly:
    """Assemble the controller of VirtualMachinePools. The controllers of both kinds share the informer `vmis`."""
    resource = pool_resource(parts.config.pool_group)
    pools = parts.informer(resource, indexes={})
    vms = parts.informer(VMS, indexes=VM_INDEXES)
    revisions = parts.informer(CONTROLLER_REVISIONS, indexes=REVISION_INDEXES)
    queue = queue_of(parts, NAME)
    pools.add_handler(wakes(queue, pools_of_pool))
    vms.add_handler(wakes(queue, pools_of_vm))
    vmis.add_handler(wakes(queue, lambda change: pools_of_vmi(change, vms.store)))
    revisions.add_handler(wakes(queue, pools_of_revision))
    takes_over = parts.config.mode == Mode.TAKEOVER
    limits = Limits(parts.config.burst, parts.config.revision_history, takes_over=takes_over)
    rules = PoolRules(Stores(pools.store, vms.store, vmis.store, revisions.store), resource, limits)
    # A plan also patches the pool itself: its finalizer, and the annotation with its healed ordinals.
    children = (pools, vms, vmis, revisions)
    return assemble(parts, rules, queue, owners=pools, children=children, shared=[vmis], merge=VM_RULES.merge)
