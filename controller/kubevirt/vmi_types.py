"""The types VirtualMachineInstance and VMI template, with the fields that the controller reads.

Values that are decoded from JSON contain no cycles, so the garbage collector of Python does not have to track them
(`gc=False`). With 50,000 VMIs the pauses of the garbage collector would delay everything else. Templates are kept as
raw bytes, so the VM gets exactly the user's template, including unknown fields.
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
    """A VMI template. `spec` is the user's JSON, unchanged; it is empty if there is no spec."""

    metadata: TemplateMeta | None = None
    spec: Raw = Raw()

    def __post_init__(self) -> None:
        # A Raw refers to the memory of the whole response. A copy keeps only these bytes, so the response can be freed.
        msgspec.structs.force_setattr(self, "spec", self.spec.copy())
