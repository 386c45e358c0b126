"""Blocks a pool's first update after vmherd has taken over the pool from KubeVirt's own controller.

In takeover mode, the VMs of a pool should already match the pool's template. If they do not match, vmherd may interpret
the pool differently from KubeVirt's controller. An update could then restart VMs without need, or delete VMs with their
disks. Therefore the controller does not update VMs until the user allows the update. The user allows the update with
the annotation `vmherd.dev/takeover: proceed`, or with a change of the template. Scaling, healing and the removal of
finalizers are not blocked.

The controller writes the state of the takeover to the pool's annotation `vmherd.dev/takeover`. The value `done` means
that the pool is taken over. The value `held`, followed by a digest of the template, means that the pool's update is
blocked. A pool without VMs counts as taken over.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from controller.kubevirt.annotations import TAKEOVER, TAKEOVER_HELD
from controller.kubevirt.vms import revision_of
from controller.pool.members.machine import vmi_revision_of
from controller.pool.members.revisions import Revisions
from controller.pool.members.situation import Situation
from controller.pool.members.snapshot import LiveUpdates
from controller.pool.rollout.effects import Effect, effect_between
from controller.pool.rollout.steps import PendingStep, Step
from controller.pool.spec.template import Template, describe_difference
from controller.runtime.actions import Notice, Plan, join, waiting
from controller.runtime.waits import Why

PROCEED: Final = "proceed"
DONE: Final = "done"

_EFFECTS: Final = {
    Effect.NOTHING: "updated",
    Effect.NO_RESTART: "updated",
    Effect.LIVE: "changed while they run",
    Effect.RESTART: "restarted",
    Effect.STOP: "stopped",
    Effect.RECREATE: "deleted with their disks",
}

_DIGEST_VERSION: Final = "2"
"""The version of the digest method.

Change this number if the method changes. Otherwise a new digest looks like a changed template, and the controller
starts updates that must stay blocked.
"""


def is_taken_over(situation: Situation, template: Template) -> bool:
    if not situation.snapshot.limits.takes_over:
        return True
    mark = situation.intent.takeover
    is_blocked = mark.startswith(f"{TAKEOVER_HELD} {_DIGEST_VERSION} ")
    return mark in (PROCEED, DONE) or (is_blocked and mark != _blocked_mark(template))


def plan_takeover(situation: Situation, update: Plan, pending: Iterable[PendingStep]) -> Plan:
    """Return the given update, or a plan that blocks the update until the user allows it. `pending` are all update
    steps. `update` contains only the first of these steps.
    """
    snapshot, revisions = situation.snapshot, situation.revisions
    if not snapshot.limits.takes_over:
        return update
    if is_taken_over(situation, revisions.template):
        if situation.intent.takeover in (PROCEED, DONE):
            return update
        return join((snapshot.note({TAKEOVER: DONE}, "takeover: its template was changed"), update))
    changes = [each for each in pending if each.step is not Step.RELABEL]
    if not changes and not update.waits:
        return join((snapshot.note({TAKEOVER: DONE}, "takeover: its virtual machines are on its template"), update))
    message = _consequences(changes, revisions, snapshot.live)
    mark = _blocked_mark(revisions.template)
    is_noted = situation.intent.takeover.startswith(TAKEOVER_HELD)
    is_new = situation.intent.takeover != mark
    note = snapshot.note({TAKEOVER: mark}, "takeover: its update waits") if is_new else Plan()
    allow = f"annotate the pool with {TAKEOVER}={PROCEED} to allow the update, or change the template"
    notice = Notice(reason="TakeoverHeld", message=f"{message}; {allow}", once=mark)
    held = waiting(
        f"takeover: {message}; {allow}",
        Why.USER if is_noted else Why.TIME,
        stall="TakeoverHeld" if is_noted else "",
        remedy=f"kubectl annotate --overwrite {{this}} {TAKEOVER}={PROCEED}",
    )
    return join((replace(note, notices=(notice,)), held))


def plan_first_mark(situation: Situation) -> Plan:
    """Plan a patch that marks a pool without VMs as taken over, before the creation of the first VM."""
    snapshot = situation.snapshot
    if snapshot.members or is_taken_over(situation, situation.intent.template):
        return Plan()
    return snapshot.note({TAKEOVER: DONE}, "takeover: it has no virtual machines")


def _consequences(changes: list[PendingStep], revisions: Revisions, live: LiveUpdates | None) -> str:
    if not changes:
        return "an update of its virtual machines is not finished"
    found = Counter(_consequence(each, revisions, live) for each in changes)
    return "; ".join(f"{count} virtual machines would be {consequence}" for consequence, count in found.items())


def _consequence(change: PendingStep, revisions: Revisions, live: LiveUpdates | None) -> str:
    """Return the effect of the update on a VM, or on its VMI if the VM is already updated."""
    vm, vmi = change.machine.vm, change.machine.vmi
    revision = vmi_revision_of(vmi) if change.begun and vmi is not None else revision_of(vm)
    past, current = revisions.templates.get(revision), revisions.template
    if past is None:
        return f"updated and restarted: their revision {revision or '(none)'} is not known"
    effect = effect_between(past, current, live)
    return f"{_EFFECTS[effect]}: their revision {revision} differs in {describe_difference(past, current)}"


def _blocked_mark(template: Template) -> str:
    return f"{TAKEOVER_HELD} {_DIGEST_VERSION} {template.digest}"
