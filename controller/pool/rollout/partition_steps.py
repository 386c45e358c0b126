"""An update in steps, with a pause after each step (P14). `spec.partition` describes the annotation.

Two annotations of the pool note the update, so a restart of the controller forgets nothing, and no scaling skips a
step. `vmherd.dev/partition-revision` names the revision that the VMs below the partition keep, from the beginning of
the update to its end. `vmherd.dev/partition-step` notes the step that has begun. When all VMs of the step have the
template, this note gets the time: the pause begins. A live change does not make a VM unready, so the time for which a
VM has been ready is not enough. The controller notes the next step when the pause has passed and the VMs have been
ready for its time. `kubectl vmherd rollout resume` notes it at once.
"""

from msgspec.structs import replace

from controller.kubevirt.annotations import PARTITION_REVISION, PARTITION_STEP
from controller.kubevirt.vms import revision_of
from controller.pool.members.ledger import outage_of
from controller.pool.members.machine import Machine, Machines
from controller.pool.members.revisions import is_updated
from controller.pool.members.situation import Situation
from controller.pool.spec.partition import ALL_ORDINALS, noted_step, step_note
from controller.pool.spec.template import Template
from controller.runtime.actions import Notice, Plan, join, waiting
from controller.runtime.members.groups import one_by_one
from informers.meta import annotations_of


def template_below(situation: Situation) -> tuple[str, Template]:
    """Return the revision and the template for new VMs below the partition: those of the other VMs below it, or the
    current ones if that revision is not known or the VMs return from it.
    """
    status, revisions = situation.snapshot.owner.status, situation.revisions
    name = _revision_to_keep(situation) or (status.current_revision if status is not None else "") or ""
    past = revisions.templates.get(name)
    if past is not None and not (revisions.is_current(name) or situation.is_rejected(name)):
        return name, past
    return revisions.current, revisions.template


def plan_partition_note(situation: Situation) -> Plan:
    """Plan a patch that notes the revision below the partition, and that the update has begun. Without a partition, the
    notes are removed: VMs of a later partition must not get a revision from before.
    """
    meta, digest, target = situation.pool, situation.revisions.template.digest, situation.target
    if not situation.intent.steps:
        stale = dict.fromkeys(sorted({PARTITION_REVISION, PARTITION_STEP} & annotations_of(meta).keys()))
        return situation.snapshot.note(stale, "no partition keeps a revision") if stale else Plan()
    if target.rejected is not None or target.last_partition == ALL_ORDINALS:
        return Plan()
    changes: dict[str, str | None] = {}
    name = _revision_to_keep(situation)
    if name not in ("", annotations_of(meta).get(PARTITION_REVISION)):
        changes[PARTITION_REVISION] = name
    if not noted_step(meta, digest).has_begun and any(map(situation.is_in_steps, _outdated(situation))):
        changes[PARTITION_STEP] = step_note(meta, digest, target.step)
    return situation.snapshot.note(changes, "notes the revision of the VMs below the partition") if changes else Plan()


def plan_partition_step(situation: Situation) -> Plan:
    """Plan a patch that notes the next step if the present step is done. Otherwise the plan says what it waits for.

    The pauses pass also if no VM is outdated any more: until then, new VMs get the template below the partition.
    """
    snapshot, intent, target, now = situation.snapshot, situation.intent, situation.target, situation.now
    text, noted = waiting_step(situation), noted_step(situation.pool, situation.revisions.template.digest)
    waits = waiting(f"update: {text}") if text else Plan()
    is_last = target.step >= len(intent.steps)
    if is_last or not noted.has_begun or len(situation.members) < target.wanted:
        return waits
    if any(map(situation.is_above_partition, _outdated(situation))):
        return waits
    pause, digest = intent.steps[target.step - 1].pause, situation.revisions.template.digest
    since = noted.since if pause else now
    if since is None or since > now:
        note = step_note(situation.pool, digest, target.step, now)
        return join((snapshot.note({PARTITION_STEP: note}, "the pause of the step begins"), waits))
    present = situation.members.without(situation.replaced)
    # After a scale-out, VMs that are updated may be below the partition.
    tried = one_by_one(
        each for each in present if situation.is_above_partition(each) or is_updated(situation.revisions, each)
    )
    outage = outage_of(tried, now, max(int(pause.total_seconds()), intent.min_ready_s))
    if outage.number or now < since + pause:
        at = outage.ends_at if outage.number else since + pause
        return replace(waits, requeue_after_s=(at - now).total_seconds() if at is not None else None)
    message = f"step {target.step + 1} of {len(intent.steps)} of the update begins"
    note = step_note(situation.pool, digest, target.step + 1)
    notice = Notice(reason="RolloutStep", message=message, warning=False, once=note)
    return join((snapshot.note({PARTITION_STEP: note}, message, notice=notice), waits))


def waiting_step(situation: Situation) -> str:
    """Return a text about the present step if later steps update more VMs, or ""."""
    steps, target = situation.intent.steps, situation.target
    later = (each for each in _outdated(situation) if situation.is_in_steps(each))
    if target.step >= len(steps) or all(map(situation.is_above_partition, later)):
        return ""
    ordinals_of, outdated = situation.snapshot.ordinals_of, _outdated(situation)
    kept = ordinals_of(each for each in outdated if not situation.is_above_partition(each))
    every = ordinals_of(situation.members)
    chosen = sorted({*every} - {*kept})
    which = f"the ordinals from {chosen[0] if chosen else target.partition} on"
    if chosen and kept and chosen[0] < kept[-1]:
        which = f"{len(chosen)} of {len(every)} VMs"  # after a scale-in and a scale-out
    which = "no VM" if target.partition == ALL_ORDINALS else which
    pause_s = int(steps[target.step - 1].pause.total_seconds())
    since = f"have been ready for {pause_s} s" if pause_s else "are ready"
    next_step = f"the next step begins when they {since}, or after kubectl vmherd rollout resume"
    return f"step {target.step} of {len(steps)} updates {which}; {next_step}"


def _revision_to_keep(situation: Situation) -> str:
    """Return the revision that the VMs below the partition keep, or "" if it is not known.

    From the beginning of an update to its end, it is the noted one. At other times, the VMs show it.
    """
    meta, revisions, target = situation.pool, situation.revisions, situation.target
    noted = annotations_of(meta).get(PARTITION_REVISION, "")
    is_known, has_begun = noted in revisions.templates, noted_step(meta, revisions.template.digest).has_begun
    is_last = target.step >= len(situation.intent.steps) if has_begun else not is_known
    if is_last and situation.members and not situation.members.some(lambda each: not is_updated(revisions, each)):
        return revisions.current
    return noted if has_begun and is_known else _oldest_below(situation) or noted


def _oldest_below(situation: Situation) -> str:
    """Return the oldest earlier revision of the VMs below the partition whose template is known, or "".

    Perhaps no such VM is below the partition of an early step, because one VM at least is updated. Then it is the
    oldest of all VMs.
    """
    snapshot, revisions, target = situation.snapshot, situation.revisions, situation.target
    numbers = {revision.metadata.name: revision.revision for revision in snapshot.revisions}
    known = sorted(revisions.templates.keys() & numbers.keys(), key=lambda name: (numbers[name], name))
    known = [name for name in known if not (revisions.is_current(name) or situation.is_rejected(name))]

    def has_vm_below(name: str, partition: int) -> bool:
        # A standby gets the new template before its step, and a user keeps a claimed VM with any template.
        machines = situation.members.where(lambda each: revision_of(each.vm) == name)
        return any(ordinal < partition for ordinal in snapshot.ordinals_of(machines))

    partitions = [target.partition, *([ALL_ORDINALS] if target.step < len(situation.intent.steps) else [])]
    return next((name for partition in partitions for name in known if has_vm_below(name, partition)), "")


def _outdated(situation: Situation) -> Machines:
    """Return the VMs that the update changes now or in a later step. Lost VMs whose work others do are left out."""

    def is_outdated(machine: Machine) -> bool:
        return situation.may_update(machine) and not is_updated(situation.revisions, machine)

    return situation.members.where(is_outdated).without(situation.replaced)
