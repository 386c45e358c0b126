"""The type VirtualMachinePool, with the fields that the controller reads.

The controller stores a pool's spec in a ControllerRevision, with only the fields of `PoolSpec`.
"""

from typing import Final

from msgspec import Struct

from controller.apimachinery.label_selectors import LabelSelector, SelectorRequirement
from controller.kubevirt.vmi_types import ReplicaStatus, VMITemplate
from informers.meta import ObjectMeta

POOL_KIND: Final = "VirtualMachinePool"


class Selectors(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    label_selector: LabelSelector | None = None
    node_selector_requirement_matcher: tuple[SelectorRequirement, ...] | None = None


class SelectionPolicy(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A policy that selects VMs. KubeVirt 1.6 has the field `basePolicy` instead of `sortPolicy`."""

    sort_policy: str | None = None
    base_policy: str | None = None
    selectors: Selectors | None = None


class ScaleInBlock(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The fields of one scale-in strategy. The strategy `unmanaged` has none of these fields."""

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
    """KubeVirt's first guide has the two `append_postfix` fields here, and today's API in `nameGeneration` (P5)."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    virtual_machine_template: VMITemplate | None = None  # its spec is that of a VM
    paused: bool | None = None
    name_generation: NameGeneration | None = None
    max_unavailable: int | str | None = None
    scale_in_strategy: ScaleInStrategy | None = None
    update_strategy: UpdateStrategy | None = None
    autohealing: Autohealing | None = None
    append_postfix_to_config_map_references: bool | None = None
    append_postfix_to_secret_references: bool | None = None


class PoolStatus(ReplicaStatus, frozen=True, gc=False, kw_only=True):
    """The status of a pool (P7, P17)."""


class Pool(Struct, frozen=True, gc=False):
    metadata: ObjectMeta = ObjectMeta()
    spec: PoolSpec = PoolSpec()
    status: PoolStatus | None = None
