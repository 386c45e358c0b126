"""The brake on the first pass over a pool that is taken over from KubeVirt's own controller.

In takeover mode, a pool that has VMs and was never ours must be at rest: its VMs are on the template that the pool
names now. If they are not, we may have misread what KubeVirt's controller left behind, and an update would restart VMs
or delete them with their disks. So no VM is changed because of its template until the user says so, with the annotation
`vmherd.dev/takeover: proceed`, or by changing the template. Scaling, healing and cleaning up go on.

The annotation `vmherd.dev/takeover` on the pool holds what is known: `done` if the pool is ours, and `held` with a
digest of the template while the brake holds. A pool that has no VMs is ours from the start.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from controller.kubevirt.annotations import TAKEOVER, TAKEOVER_HELD
from controller.kubevirt.vms import revision_of
from controller.pool.revisions import Revisions
from controller.pool.snapshot import Snapshot
from controller.pool.template import Template, describe_difference
from controller.pool.update import vmi_revision_of
from controller.runtime.plan import Delete, Notice, Patch, Plan, Stage, ThreeWayMerge
from informers.meta import annotations_of
from informers.objects import PatchType

PROCEED: Final = "proceed"
DONE: Final = "done"

_FORM: Final = "1"
"""The version of the digest. A held pool stays held if a later version of vmherd computes digests in another way."""


def is_taken_over(snapshot: Snapshot, template: Template) -> bool:
    """True if the pool is ours: no brake holds its updates."""
    if not snapshot.limits.takes_over:
        return True
    mark = _mark_of(snapshot)
    held_for_another_template = mark.startswith(f"{TAKEOVER_HELD} {_FORM} ") and mark != _held_mark(template)
    return mark in (PROCEED, DONE) or held_for_another_template


def plan_takeover(snapshot: Snapshot, revisions: Revisions, update: Plan) -> Plan:
    """The update as it may be carried out, and the note on the pool about how far the takeover is."""
    if not snapshot.limits.takes_over:
        return update
    if is_taken_over(snapshot, revisions.template):
        is_known = _mark_of(snapshot) in (PROCEED, DONE)
        return update if is_known else _with_first_stage(update, _note(snapshot, DONE, "its template was changed"))
    changes = [action for action in update.actions if isinstance(action, ThreeWayMerge | Delete)]
    if not changes and not update.held:
        return _with_first_stage(update, _note(snapshot, DONE, "its virtual machines are on its template"))
    message = _what_would_happen(snapshot, changes, revisions)
    mark = _held_mark(revisions.template)
    stages = (_note(snapshot, mark, "its update waits"),) if _mark_of(snapshot) != mark else ()
    notice = Notice(
        reason="TakeoverHeld",
        message=f"{message}. Annotate the pool with {TAKEOVER}={PROCEED} to allow it, or change the template",
        once=mark,
    )
    return Plan(stages=stages, notices=(notice,), held=f"takeover: {message}")


def plan_first_mark(snapshot: Snapshot, template: Template) -> Plan:
    """Note that a pool without VMs is ours. It goes before the first create."""
    if snapshot.members or is_taken_over(snapshot, template):
        return Plan()
    return Plan(stages=(_note(snapshot, DONE, "it has no virtual machines"),))


def _what_would_happen(snapshot: Snapshot, changes: list[ThreeWayMerge | Delete], revisions: Revisions) -> str:
    """What the update would do to VMs, and in which fields their template differs from the pool's."""
    if not changes:
        return "an update of its virtual machines is not finished"
    names = {vm.metadata.name: revision_of(vm) for vm in snapshot.members}
    names |= {
        change.key.name: vmi_revision_of(snapshot.vmis[change.key.name])
        for change in changes
        if isinstance(change, Delete) and change.key.name in snapshot.vmis
    }
    found = Counter(_consequence(names.get(change.key.name, ""), revisions) for change in changes)
    return "; ".join(f"{count} virtual machines would be {what}" for what, count in found.items())


def _consequence(made_from: str, revisions: Revisions) -> str:
    past, current = revisions.templates.get(made_from), revisions.template
    if past is None:
        return f"updated and restarted: their revision {made_from or '(none)'} is not known"
    if past.disks != current.disks:
        what = "deleted with their disks"
    elif past.machine != current.machine:
        what = "restarted"
    else:
        what = "updated"
    return f"{what}: their revision {made_from} differs in {describe_difference(past, current)}"


def _mark_of(snapshot: Snapshot) -> str:
    return annotations_of(snapshot.owner.metadata).get(TAKEOVER, "")


def _held_mark(template: Template) -> str:
    return f"{TAKEOVER_HELD} {_FORM} {template.digest}"


def _note(snapshot: Snapshot, mark: str, why: str) -> Stage:
    meta = snapshot.owner.metadata
    body = msgspec.json.encode({"metadata": {"uid": meta.uid, "annotations": {TAKEOVER: mark}}})
    note = Patch(
        resource=snapshot.pools, key=meta.key, body=body, type=PatchType.MERGE, why=f"takeover: {why}", is_note=True
    )
    return Stage((note,))


def _with_first_stage(plan: Plan, stage: Stage) -> Plan:
    return msgspec.structs.replace(plan, stages=(stage, *plan.stages))
