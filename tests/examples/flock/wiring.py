"""Puts the flock's controller together."""

from __future__ import annotations

from typing import Final

from controller.kubevirt.resources import VMIS
from controller.runtime.wiring import Assembly, Cache, Parts, queue_of, wakes
from controller.runtime.wiring import assemble as assemble_kind
from tests.examples.flock.descriptor import FLOCKS
from tests.examples.flock.rules import FlockRules
from tests.examples.flock.snapshot import VMI_INDEXES
from tests.examples.flock.triggers import flocks_of_flock, flocks_of_vmi

CACHES: Final = {VMIS: Cache(VMI_INDEXES)}


def assemble(parts: Parts) -> Assembly:
    """The controller of VirtualMachineFlocks."""
    resource = FLOCKS.resource(parts.config.group_of(FLOCKS))
    flocks, vmis = parts.informer(resource, Cache({})), parts.cache(VMIS)
    queue = queue_of(parts, FLOCKS)
    flocks.add_handler(wakes(queue, flocks_of_flock))
    vmis.add_handler(wakes(queue, flocks_of_vmi))
    rules = FlockRules(flocks.store, vmis.store, resource)
    return assemble_kind(parts, FLOCKS, rules, queue, owners=flocks, written=[vmis])
