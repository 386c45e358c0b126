"""An update in steps, with a pause after each step (P14). `spec.partition` describes the annotation.

The pool's annotation `vmherd.dev/partition-step` notes the step that has begun, so a restart of the controller forgets
nothing. When all VMs of the step have the template, the note gets the time: the pause begins. A live change does not
make a VM unready, so the time for which a VM has been ready is not enough. The controller notes the next step when the
pause has passed and the VMs have been ready for its time. `kubectl vmherd rollout resume` notes it at once.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from controller.kubevirt.annotations import PARTITION_STEP
from controller.pool.members.machine import Machine
from controller.pool.members.situation import Situation
from controller.pool.rollout.limits import count_unavailable
from controller.pool.rollout.steps import is_updated
from controller.pool.spec.partition import noted_step, step_note
from controller.replicas.notes import plan_note
from controller.runtime.actions import Notice, Plan


def plan_partition_step(situation: Situation) -> Plan:
    """Plan a patch that notes the next step if the present step is done. Otherwise the plan says what it waits for."""
    text = waiting_step(situation)
    if not text:
        return Plan()
    snapshot, intent, target = situation.snapshot, situation.intent, situation.target
    waits = Plan(held=f"update: {text}")
    if len(situation.members) < target.wanted or any(map(situation.is_above_partition, _outdated(situation))):
        return waits
    pause, digest = intent.steps[target.step - 1].pause, situation.revisions.template.digest
    since = noted_step(situation.pool, digest)[1] if pause else situation.now
    if since is None:
        note = step_note(situation.pool, digest, target.step, situation.now)
        begins = plan_note(snapshot.pools, situation.pool, {PARTITION_STEP: note}, "the pause of the step begins")
        return replace(begins, held=waits.held)
    above = [each for each in situation.members if situation.is_above_partition(each)]
    availability = count_unavailable(snapshot, above, max(int(pause.total_seconds()), intent.min_ready_s))
    if availability.unavailable or situation.now < since + pause:
        at = availability.next_at if availability.unavailable else since + pause
        return replace(waits, requeue_after_s=(at - situation.now).total_seconds() if at is not None else None)
    step = target.step + 1
    message = f"step {step} of {len(intent.steps)} of the update begins"
    note = step_note(situation.pool, digest, step)
    notice = Notice(reason="RolloutStep", message=message, warning=False, once=note)
    return plan_note(snapshot.pools, situation.pool, {PARTITION_STEP: note}, message, notice=notice)


def waiting_step(situation: Situation) -> str:
    """Return a text about the present step if later steps update more VMs, or ""."""
    steps, target = situation.intent.steps, situation.target
    later = (each for each in _outdated(situation) if situation.is_in_steps(each))
    if target.step >= len(steps) or all(map(situation.is_above_partition, later)):
        return ""
    pause_s = int(steps[target.step - 1].pause.total_seconds())
    since = f"have been ready for {pause_s} s" if pause_s else "are ready"
    return (
        f"step {target.step} of {len(steps)} updates the ordinals from {target.partition} on; the next step "
        f"begins when they {since}, or after kubectl vmherd rollout resume"
    )


def _outdated(situation: Situation) -> Iterator[Machine]:
    """Yield the VMs that the update changes now or in a later step."""
    return iter(
        situation.members.where(lambda each: situation.may_update(each) and not is_updated(situation.revisions, each))
    )
