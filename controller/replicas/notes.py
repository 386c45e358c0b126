"""Notes: annotations that the controller writes on a set, a pool or a VM, so that a restart forgets nothing."""

from collections.abc import Mapping

import msgspec

from controller.runtime.actions import AnyResource, Patch, Plan, Stage
from informers.meta import ObjectMeta
from informers.objects import PatchType


def note_patch(resource: AnyResource, meta: ObjectMeta, changes: Mapping[str, str | None], why: str) -> Patch:
    """Return a patch that writes these annotations. An annotation without a value is removed."""
    body = msgspec.json.encode({"metadata": {"uid": meta.uid, "annotations": changes}})
    return Patch(resource=resource, key=meta.key, body=body, type=PatchType.MERGE, why=why, is_note=True)


def plan_note(
    resource: AnyResource, meta: ObjectMeta, changes: Mapping[str, str | None], why: str, *, essential: bool = False
) -> Plan:
    """Return a plan with this patch. If the note is not essential, its failure stops no other write."""
    return Plan(stages=(Stage((note_patch(resource, meta, changes, why),), essential=essential),))
