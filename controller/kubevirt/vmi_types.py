"""The types VirtualMachineInstance and VMI template, with the fields that the controller reads.

Values that are decoded from JSON contain no reference cycles, so Python's garbage collector need not track these
values (`gc=False`). With 50,000 VMIs the pauses of the garbage collector would delay all other work. Templates stay raw
bytes, so the VM gets exactly the user's template, including unknown fields.
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
    """The part of a template's metadata that is copied to the objects that are created from the template."""

    name: str | None = None
    generate_name: str | None = None
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


class VMITemplate(Struct, frozen=True, gc=False):
    """A VMI template. `spec` is the user's JSON, unchanged. `spec` is empty if the template has no spec."""

    metadata: TemplateMeta | None = None
    spec: Raw = Raw()

    def __post_init__(self) -> None:
        # A Raw keeps the memory of the whole response in use. A copy needs only the bytes of this value.
        msgspec.structs.force_setattr(self, "spec", self.spec.copy())
