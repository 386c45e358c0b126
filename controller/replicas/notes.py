"""Notes: annotations that the controller writes on a set, a pool or a VM, so that a restart forgets nothing."""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from controller.runtime.actions import AnyResource, Notice, Patch, Plan, Stage
from informers.meta import ObjectMeta
from informers.objects import PatchType


def note_patch(resource: AnyResource, meta: ObjectMeta, changes: Mapping[str, str | None], why: str) -> Patch:
    """Return a patch that writes these annotations. An annotation without a value is removed."""
    body = msgspec.json.encode({"metadata": {"uid": meta.uid, "annotations": changes}})
    return Patch(resource=resource, key=meta.key, body=body, type=PatchType.MERGE, why=why, is_note=True)


def plan_note(
    resource: AnyResource,
    meta: ObjectMeta,
    changes: Mapping[str, str | None],
    why: str,
    *,
    essential: bool = False,
    notice: Notice | None = None,
) -> Plan:
    """Return a plan with this patch. If the note is not essential, its failure stops no other write.

    `notice` is the Event that tells of the note. It is sent only if the note was written.
    """
    patch = note_patch(resource, meta, changes, why)
    notices = (replace(notice, after=patch),) if notice is not None else ()
    return Plan(stages=(Stage((patch,), essential=essential),), notices=notices)
