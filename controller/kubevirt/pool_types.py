"""VirtualMachinePools, as far as a reconciler reads them. Encoding a spec gives back what was read of it."""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

from controller.apimachinery.conditions import Condition
from controller.apimachinery.label_selectors import LabelSelector, SelectorRequirement
from controller.kubevirt.vmi_types import VMITemplate
from informers.meta import ObjectMeta

POOL_KIND: Final = "VirtualMachinePool"

VMTemplate: TypeAlias = VMITemplate
"""`virtualMachineTemplate`: labels and annotations, and the VM spec as raw JSON. It has the shape of a VMI template."""


class Selectors(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    label_selector: LabelSelector | None = None
    node_selector_requirement_matcher: tuple[SelectorRequirement, ...] | None = None


class SelectionPolicy(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    sort_policy: str | None = None
    selectors: Selectors | None = None


class ScaleInBlock(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What any of the scale-in strategies may hold; `unmanaged` holds nothing."""

    selection_policy: SelectionPolicy | None = None
    state_preservation: str | None = None


class ScaleInStrategy(Struct, frozen=True, gc=False, omit_defaults=True):
    unmanaged: ScaleInBlock | None = None
    opportunistic: ScaleInBlock | None = None
    proactive: ScaleInBlock | None = None


class UpdateBlock(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    selection_policy: SelectionPolicy | None = None


class UpdateStrategy(Struct, frozen=True, gc=False, omit_defaults=True):
    unmanaged: UpdateBlock | None = None
    opportunistic: UpdateBlock | None = None
    proactive: UpdateBlock | None = None


class NameGeneration(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    append_index_to_config_map_refs: bool | None = None
    append_index_to_secret_refs: bool | None = None
    append_postfix_to_config_map_references: bool | None = None
    append_postfix_to_secret_references: bool | None = None


class Autohealing(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    start_up_failure_threshold: int | None = None
    min_failing_to_start_duration: str | None = None


class PoolSpec(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The last two booleans are the first guide's spelling, which stood in the spec itself (P5)."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    virtual_machine_template: VMTemplate | None = None
    paused: bool | None = None
    name_generation: NameGeneration | None = None
    max_unavailable: int | str | None = None
    scale_in_strategy: ScaleInStrategy | None = None
    update_strategy: UpdateStrategy | None = None
    autohealing: Autohealing | None = None
    append_postfix_to_config_map_references: bool | None = None
    append_postfix_to_secret_references: bool | None = None


class PoolStatus(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """What the pool reports (P7, P17). Optional on the wire, so that another writer's status decodes as well."""

    replicas: int | None = None
    ready_replicas: int | None = None
    updated_replicas: int | None = None
    observed_generation: int | None = None
    label_selector: str | None = None
    current_revision: str | None = None
    update_revision: str | None = None
    printable_status: str | None = None
    conditions: tuple[Condition, ...] | None = None


class Pool(Struct, frozen=True, gc=False):
    """A VirtualMachinePool."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PoolSpec = PoolSpec()
    status: PoolStatus | None = None
