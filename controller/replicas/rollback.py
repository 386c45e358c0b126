"""Return by itself: if a rollout stalls, its VMs go back to the last revision that was wholly ready (P29).

The annotation `ROLLBACK` on a set or pool asks for it. The spec stays as it is: the plans of both kinds replace the
template of the spec with the earlier one. So the way back is an update like any other, within the same limits.

Two notes on the set or pool survive a crash. `READY_REVISION` names the last revision that all VMs had while all were
available. `ROLLED_BACK` has the digest of the template that stalled, the revision to return to and the time. It is
written before the first step back, and counts until the template changes: a template is tried once, and a return that
stalls too waits for a user.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.conditions import time_text
from controller.apimachinery.label_selectors import Selector
from controller.kubevirt.annotations import PARTITION_STEP, READY_REVISION, ROLLED_BACK
from controller.kubevirt.delicate import paused_or_unreadable
from controller.kubevirt.limits import Template
from controller.kubevirt.vm_types import ControllerRevision
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import is_out_of_reach, was_evicted
from controller.replicas.kstatus import Health, Stall, Word, is_overdue, plan_deadline
from controller.replicas.notes import plan_note, wake_at
from controller.replicas.settings import Settings
from controller.replicas.target import Target
from controller.runtime.actions import Notice, Plan, join, waiting
from controller.runtime.waits import Why
from informers.meta import ObjectMeta, annotations_of
from informers.resource import Resource

T = TypeVar("T", bound=Template)


class Rollout(Struct, frozen=True, kw_only=True):
    """What a set or pool and its VMs show.

    - `digest`: the digest of the template in the spec.
    - `revision`: the name of the present revision.
    - `ready`: the revision that all VMs have and with which all wanted VMs are available, or "".
    - `ready_at`: when the next VM becomes available, if `ready` is empty only because of that. Otherwise None.
    - `unready`: the VMs of the present revision that are not ready: since when, and the name.
    - `usable`: a function that returns the template of a revision, or a text that says why VMs cannot get it.

    `ready` and `unready` are empty if no VM may return: no annotation asks, the present revision was once wholly ready,
    it is the first one, or the VMs have returned already.
    """

    owner: ObjectMeta
    settings: Settings
    resource: Resource[Any]
    digest: str
    revision: str
    ready: str
    unready: Iterable[tuple[datetime | None, str]]
    usable: Callable[[str], Any]
    ready_at: datetime | None = None


def tells_of_template(vmi: VirtualMachineInstance | None) -> bool:
    """Return False if a VMI that is not ready says nothing about its template: it is paused, its node does not answer,
    or its Pod was evicted. A missing one does.
    """
    return vmi is None or not (paused_or_unreadable(vmi) or is_out_of_reach(vmi) or was_evicted(vmi))


def usable_template(
    name: str, revisions: Iterable[ControllerRevision], read: Callable[[ControllerRevision], Any], selector: Selector
) -> Any:
    """Return the template of the revision, which `read` returns or None, or a text that says why VMs cannot get it."""
    found = next((each for each in revisions if each.metadata.name == name), None)
    if found is None or found.metadata.deletion_timestamp is not None:
        return f"revision {name} does not exist any more"
    template = read(found)
    if template is None:
        return f"revision {name} cannot be read"
    return template if selector.matches(template.labels) else f"spec.selector does not match revision {name}"


def rolled_out(
    settings: Settings, template: T, digest: str, usable: Callable[[str], T | str]
) -> tuple[T, T | None, str]:
    """Return the template that a set or pool with this template rolls out, the template from which its VMs have
    returned or None, and why they cannot return or "" (see `Target`).
    """
    target = settings.return_target(digest)
    if not target:
        return template, None, ""
    found = usable(target)
    if isinstance(found, str):
        return template, template, f"its VMs have returned to revision {target}, but {found}; change the template"
    return found, template, ""


def plan_notes(rollout: Rollout, now: datetime) -> Plan:
    """Plan to note a revision that is wholly ready, now or when the next VM becomes available, and to remove old notes.
    The caller puts the stage before the update. If the note fails, no VM is updated.
    """
    owner, noted = rollout.owner, annotations_of(rollout.owner)
    stale = [READY_REVISION] if not rollout.settings.returns else []
    stale += [ROLLED_BACK] if not rollout.settings.return_target(rollout.digest) else []
    changes: dict[str, str | None] = {name: None for name in stale if name in noted}
    if rollout.ready not in ("", noted.get(READY_REVISION)):
        changes[READY_REVISION] = rollout.ready
    why = "notes the revision that was wholly ready"
    if changes:
        return plan_note(rollout.resource, owner, changes, why, essential=True)
    return wake_at([rollout.ready_at], now)


def plan_return(rollout: Rollout, now: datetime) -> Plan:
    """Plan to note that the VMs return, if a VM of the new revision has exceeded the progress deadline, or to look
    again then. The caller puts the stage first, and updates no VM in the same plan. If no earlier revision can be used,
    nothing returns, and an Event says why.
    """
    deadline = rollout.settings.deadline
    unready = [(since, name) for since, name in rollout.unready if since is not None]
    late = [(since, name) for since, name in unready if is_overdue(since, now, deadline)]
    if not late:
        return plan_deadline((since for since, _ in unready), now, deadline)
    target = rollout.settings.ready_revision
    found = rollout.usable(target) if target else "no earlier revision is known that was wholly ready"
    text = f"revision {rollout.revision} is not ready in time ({min(late)[1]})"
    if isinstance(found, str):
        return hold_return(f"{text}, and no VM returns by itself: {found}")
    text = f"{text}; its VMs return to revision {target} until the template changes"
    notice = Notice(reason="RolledBack", message=text, once=f"rolled back {rollout.digest} {target}")
    changes: dict[str, str | None] = {ROLLED_BACK: f"{rollout.digest} to {target} at {time_text(now)}"}
    if PARTITION_STEP in annotations_of(rollout.owner):
        changes[PARTITION_STEP] = None  # if the template is tried again, its steps begin with the first
    return join((plan_note(rollout.resource, rollout.owner, changes, text, notice=notice), waiting(text)))


def hold_return(why: str) -> Plan:
    """Return a plan that writes nothing, because an earlier revision cannot be used. An Event says why."""
    return replace(waiting(why, Why.USER), notices=(Notice(reason="RollbackHeld", message=why, once=why),))


def with_return(health: Health, target: Target[Any], revision: str, earlier: str) -> Health:
    """Return the state, which says so if the VMs have returned from `revision` to `earlier`, or still return."""
    if target.rejected is None:
        return health
    text = f"revision {revision} was not ready in time; its VMs return to revision {earlier} until the template changes"
    problem = target.stranded or (f"{text}; {health.problem}" if health.problem else text)
    return Health(Word.ROLLED_BACK, problem, Stall(Word.ROLLED_BACK, problem))
