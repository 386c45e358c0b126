"""Notices about deletion costs that are not valid (R6, P8)."""

from __future__ import annotations

from collections.abc import Iterable

from controller.apimachinery.field_error import FieldError
from controller.kubevirt.annotations import DELETION_COST, deletion_cost
from controller.kubevirt.progress import INVALID_ANNOTATION
from controller.runtime.plan import Notice
from informers.meta import KubeObject, ObjectMeta, annotations_of


def malformed_costs(machines: Iterable[KubeObject]) -> tuple[Notice, ...]:
    """Return one warning for each VM or VMI whose deletion cost is not an integer.

    The user gets a new warning when the invalid value changes to another invalid value.
    """
    errors = [
        (each.metadata, cost) for each in machines if isinstance(cost := deletion_cost(each.metadata), FieldError)
    ]
    return tuple(_malformed_cost(meta, error) for meta, error in sorted(errors, key=lambda pair: pair[0].name))


def _malformed_cost(meta: ObjectMeta, error: FieldError) -> Notice:
    return Notice(
        reason=INVALID_ANNOTATION,
        message=f"virtual machine {meta.name}: {error.message}",
        once=f"{DELETION_COST} {meta.uid} {annotations_of(meta).get(DELETION_COST)}",
    )
