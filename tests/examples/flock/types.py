"""VirtualMachineFlocks, with only the fields that the reconciler reads."""

from msgspec import Struct

from controller.apimachinery.conditions import Condition
from controller.kubevirt.vmi_types import VMITemplate
from informers.meta import ObjectMeta


class FlockSpec(Struct, frozen=True, gc=False, rename="camel"):
    replicas: int | None = None
    template: VMITemplate | None = None
    paused: bool | None = None


class FlockStatus(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    replicas: int | None = None
    ready_replicas: int | None = None
    updated_replicas: int | None = None
    observed_generation: int | None = None
    conditions: tuple[Condition, ...] | None = None


class Flock(Struct, frozen=True, gc=False):
    metadata: ObjectMeta = ObjectMeta()
    spec: FlockSpec = FlockSpec()
    status: FlockStatus | None = None

    rolls_out = False
    most_unavailable = None
