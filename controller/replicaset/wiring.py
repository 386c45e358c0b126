"""Assembles the controller of replica sets."""

from __future__ import annotations

from controller.kubevirt.resources import VMIS, replicaset_resource
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicaset.rules import NAME, ReplicaSetRules
from controller.replicaset.snapshot import REPLICASET_INDEXES
from controller.replicaset.triggers import replicasets_of_replicaset, replicasets_of_vmi
from controller.runtime.wiring import Assembly, Parts, assemble, queue_of, wakes
from informers.informer import SharedInformer


def assemble_replicaset(parts: Parts, vmis: SharedInformer[VirtualMachineInstance]) -> Assembly:
    """Assemble the controller of VirtualMachineInstanceReplicaSets. Other kinds use the informer `vmis` as well."""
    resource = replicaset_resource(parts.config.replicaset_group)
    sets = parts.informer(resource, indexes=REPLICASET_INDEXES)
    queue = queue_of(parts, NAME)
    sets.add_handler(wakes(queue, replicasets_of_replicaset))
    vmis.add_handler(wakes(queue, lambda change: replicasets_of_vmi(change, sets.store)))
    rules = ReplicaSetRules(sets.store, vmis.store, resource, VMIS, parts.config.burst)
    return assemble(parts, rules, queue, owners=sets, children=[vmis], shared=[vmis])
