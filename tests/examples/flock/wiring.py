"""Creates the controller of VirtualMachineFlocks from its parts."""

from collections.abc import Mapping
from typing import Any, Final

from controller.assembly import Assembly, Cache, Parts, queue_of, wakes
from controller.assembly import assemble as assemble_kind
from controller.config.settings import Config
from controller.kubevirt.resources import VMIS
from controller.runtime.actions import AnyResource
from controller.runtime.execute.refusals import Refusals
from informers.resource import Resource
from informers.store import StoreView
from tests.examples.flock.descriptor import FLOCKS
from tests.examples.flock.rules import FlockRules
from tests.examples.flock.snapshot import VMI_INDEXES
from tests.examples.flock.triggers import flocks_of_flock, flocks_of_vmi
from tests.examples.flock.types import Flock

CACHES: Final = {VMIS: Cache(VMI_INDEXES)}
OWNER_CACHE: Final = Cache({})


def rules_of(
    config: Config, resource: Resource[Flock], owners: StoreView[Flock], stores: Mapping[AnyResource, StoreView[Any]]
) -> FlockRules:
    return FlockRules(owners, stores[VMIS], resource, Refusals())


def assemble(parts: Parts) -> Assembly:
    resource = FLOCKS.resource(parts.config.group_of(FLOCKS))
    flocks, vmis = parts.informer(resource, OWNER_CACHE), parts.cache(VMIS)
    queue = queue_of(parts, FLOCKS)
    flocks.add_handler(wakes(queue, flocks_of_flock))
    vmis.add_handler(wakes(queue, flocks_of_vmi))
    rules = rules_of(parts.config, resource, flocks.store, parts.stores)
    return assemble_kind(parts, FLOCKS, rules, queue, owners=flocks, written=[vmis])
