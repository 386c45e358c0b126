"""VirtualMachineInstances and their templates, as far as a reconciler reads them.

Values that are decoded from JSON hold no cycles, so the collector need not look at them (`gc=False`): at 50,000 VMIs
its pauses would hold up everything else. Templates are carried as raw bytes: what a user wrote reaches the VM with
every unknown field in place.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw, Struct

from controller.apimachinery.conditions import Condition
from informers.meta import ObjectMeta


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
