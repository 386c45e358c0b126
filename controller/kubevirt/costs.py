"""Deletion costs that cannot be read, told to their user (R6, P8)."""

from __future__ import annotations

from collections.abc import Iterable

from controller.apimachinery.field_error import FieldError
from controller.kubevirt.annotations import DELETION_COST, deletion_cost
from controller.kubevirt.progress import INVALID_ANNOTATION
from controller.runtime.plan import Notice
from informers.meta import KubeObject, ObjectMeta, annotations_of


def malformed_costs(machines: Iterable[KubeObject]) -> tuple[Notice, ...]:
    """One Warning for each machine and value that is no deletion cost."""
    flawed = [
        (each.metadata, cost) for each in machines if isinstance(cost := deletion_cost(each.metadata), FieldError)
    ]
    return tuple(_malformed_cost(meta, flaw) for meta, flaw in sorted(flawed, key=lambda pair: pair[0].name))


def _malformed_cost(meta: ObjectMeta, flaw: FieldError) -> Notice:
    return Notice(
        reason=INVALID_ANNOTATION,
        message=f"virtual machine {meta.name}: {flaw.message}",
        once=f"{DELETION_COST} {meta.uid} {annotations_of(meta).get(DELETION_COST)}",
    )
