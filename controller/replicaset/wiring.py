"""The function that assembles the controller of replica sets, and the caches that the controller needs."""

from __future__ import annotations

from typing import Final

from controller.kinds import REPLICA_SETS
from controller.kubevirt.resources import VMIS
from controller.replicaset.rules import ReplicaSetRules
from controller.replicaset.snapshot import REPLICASET_INDEXES, VMI_INDEXES
from controller.replicaset.triggers import replicasets_of_replicaset, replicasets_of_vmi
from controller.runtime.wiring import Assembly, Cache, Parts, queue_of, wakes
from controller.runtime.wiring import assemble as assemble_kind

CACHES: Final = {VMIS: Cache(VMI_INDEXES)}


def assemble(parts: Parts) -> Assembly:
    """Assemble the controller of VirtualMachineInstanceReplicaSets."""
    resource = REPLICA_SETS.resource(parts.config.group_of(REPLICA_SETS))
    sets, vmis = parts.informer(resource, Cache(REPLICASET_INDEXES)), parts.cache(VMIS)
    queue = queue_of(parts, REPLICA_SETS)
    sets.add_handler(wakes(queue, replicasets_of_replicaset))
    vmis.add_handler(wakes(queue, lambda change: replicasets_of_vmi(change, sets.store)))
    rules = ReplicaSetRules(sets.store, vmis.store, resource, VMIS, parts.config.burst)
    return assemble_kind(parts, REPLICA_SETS, rules, queue, owners=sets, written=[vmis])
