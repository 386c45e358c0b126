"""KubeVirt's objects, as far as a reconciler reads them.

Values that are decoded from JSON hold no cycles, so the collector need not look at them (`gc=False`): at 50,000 VMIs
its pauses would hold up everything else. Templates are carried as raw bytes: what a user wrote reaches the VM with
every unknown field in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec
from msgspec import Raw, Struct

from informers.meta import ObjectMeta


class Condition(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """One entry of `status.conditions`, as KubeVirt writes it. `status` is "True", "False" or "Unknown"."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_probe_time: datetime | None = None
    last_transition_time: datetime | None = None


class MigrationState(Struct, frozen=True, gc=False, rename="camel"):
    completed: bool | None = None
    failed: bool | None = None


class VMIStatus(Struct, frozen=True, gc=False, rename="camel"):
    phase: str | None = None
    node_name: str | None = None
    conditions: tuple[Condition, ...] | None = None
    migration_state: MigrationState | None = None


class VirtualMachineInstance(Struct, frozen=True, gc=False, rename="camel"):
    metadata: ObjectMeta = ObjectMeta()
    status: VMIStatus | None = None


class LabelRequirement(Struct, frozen=True, gc=False, omit_defaults=True):
    """One entry of `matchExpressions`: In, NotIn, Exists or DoesNotExist."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class LabelSelector(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    match_labels: Mapping[str, str] | None = None
    match_expressions: tuple[LabelRequirement, ...] | None = None


class TemplateMeta(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The part of a template's metadata that reaches what is made from it."""

    name: str | None = None
    generate_name: str | None = None
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


class VMITemplate(Struct, frozen=True, gc=False):
    """A VMI template: `spec` is the JSON that the user wrote, untouched; empty where there is none."""

    metadata: TemplateMeta | None = None
    spec: Raw = Raw()

    def __post_init__(self) -> None:
        # A Raw is a view of the whole response it was decoded from: keep the few bytes, free the rest.
        msgspec.structs.force_setattr(self, "spec", self.spec.copy())


class NodeRequirement(Struct, frozen=True, gc=False, omit_defaults=True):
    """One entry of a node selector: In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class ReplicaSetSpec(Struct, frozen=True, gc=False, rename="camel"):
    replicas: int | None = None
    selector: LabelSelector | None = None
    template: VMITemplate | None = None
    paused: bool | None = None


class ReplicaSetStatus(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """What the set reports (R11). Optional on the wire, so that another writer's status decodes as well."""

    replicas: int | None = None
    ready_replicas: int | None = None
    updated_replicas: int | None = None
    observed_generation: int | None = None
    label_selector: str | None = None
    conditions: tuple[Condition, ...] | None = None


class ReplicaSet(Struct, frozen=True, gc=False):
    """A VirtualMachineInstanceReplicaSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus | None = None
