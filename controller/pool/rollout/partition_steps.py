"""An update in steps, with a pause after each step (P14). `spec.partition` describes the annotation.

The pool's annotation `vmherd.dev/partition-step` notes the step that has begun, so a restart of the controller forgets
nothing. The controller notes the next step when the updated VMs have been ready for the pause of the present step.
`kubectl vmherd rollout resume` notes it at once. The time for which a VM has been ready is in the VM's own status.
"""

from collections.abc import Iterator

from controller.kubevirt.annotations import PARTITION_STEP
from controller.pool.members.machine import Machine
from controller.pool.members.notes import note_patch
from controller.pool.members.situation import Situation
from controller.pool.rollout.limits import count_unavailable, min_ready_of
from controller.pool.rollout.steps import is_updated
from controller.pool.spec.partition import step_note
from controller.runtime.actions import Notice, Plan, Stage


def plan_partition_step(situation: Situation) -> Plan:
    """Plan a patch that notes the next step if the present step is done. Otherwise the plan says what it waits for."""
    text = waiting_step(situation)
    if not text:
        return Plan()
    snapshot, intent = situation.snapshot, situation.intent
    waits = Plan(held=f"update: {text}")
    if len(situation.members) < intent.wanted or any(map(situation.is_above_partition, _outdated(situation))):
        return waits
    pause_s = int(intent.steps[intent.step - 1].pause.total_seconds())
    above = [each for each in situation.members if situation.is_above_partition(each)]
    availability = count_unavailable(snapshot, above, max(pause_s, min_ready_of(snapshot)))
    if availability.unavailable:
        at = availability.next_at
        return Plan(held=waits.held, requeue_after_s=(at - situation.now).total_seconds() if at is not None else None)
    step = intent.step + 1
    note = step_note(situation.pool, situation.revisions.template.digest, step)
    patch = note_patch(snapshot.pools, situation.pool, PARTITION_STEP, note, f"step {step} of the update begins")
    message = f"step {step} of {len(intent.steps)} of the update begins"
    notice = Notice(reason="RolloutStep", message=message, warning=False, once=note)
    return Plan(stages=(Stage((patch,), essential=False),), notices=(notice,))


def waiting_step(situation: Situation) -> str:
    """Return a text about the present step if later steps update more VMs, or ""."""
    intent = situation.intent
    later = (each for each in _outdated(situation) if situation.is_in_steps(each))
    if intent.step >= len(intent.steps) or all(map(situation.is_above_partition, later)):
        return ""
    pause_s = int(intent.steps[intent.step - 1].pause.total_seconds())
    since = f"have been ready for {pause_s} s" if pause_s else "are ready"
    return (
        f"step {intent.step} of {len(intent.steps)} updates the ordinals from {intent.partition} on; the next step "
        f"begins when they {since}, or after kubectl vmherd rollout resume"
    )


def _outdated(situation: Situation) -> Iterator[Machine]:
    """Yield the VMs that the update changes now or in a later step."""
    return iter(
        situation.members.where(lambda each: situation.may_update(each) and not is_updated(situation.revisions, each))
    )
