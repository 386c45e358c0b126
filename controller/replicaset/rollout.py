"""The rolling update. A replica set with the rolling-update annotation replaces its outdated VMIs step by step (R14).

A ready VMI is deleted only while fewer than `maxUnavailable` VMIs are not ready, and an unready one at once. With
`maxSurge`, the scale-out creates the surge, and each ready one allows one more deletion. If `maxUnavailable` new VMIs
do not become ready, the rollout stops. One that replaces an early failure (R4a) counts only after ten minutes.

If no VMI of the template becomes ready within the progress deadline, from the first failed VMI on, an Event tells it
once for each template. The VMIs may also return to the last revision that was wholly ready (P29, `replicas.rollback`).
"""

from collections.abc import Iterator
from datetime import datetime

from controller.kubevirt.annotations import ADOPTED_TEMPLATE, ROLLING_UPDATE, is_protected
from controller.kubevirt.delicate import reason_to_spare_vmi
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import entered, is_ready, ready_since, unready_since
from controller.replicas import rollback
from controller.replicas.conditions import counted
from controller.replicas.draining import is_draining
from controller.replicas.notes import wake_at, watch_progress
from controller.replicas.revisions import set_revision_name
from controller.replicas.rollback import tells_of_template
from controller.replicaset.back_off import failing_since, is_proven, next_proof, trial_of
from controller.replicaset.intent import Rollout
from controller.replicaset.ranking import rank_for_removal
from controller.replicaset.revisions import revision_number
from controller.replicaset.scale import delete_of, hold_spared, successor_of, wait_for_protected
from controller.replicaset.situation import Situation, usable_in
from controller.replicaset.template import has_hash, is_updated
from controller.replicaset.traits import replaces_failure
from controller.runtime.actions import Cause, Notice, Plan, Stage, join, stage_of, waiting
from controller.runtime.waits import Wait, Why
from informers.meta import annotations_of


def plan_rollout(situation: Situation, *, limit: int) -> Plan:
    """Plan to delete at most `limit` outdated VMIs, none while wanted ones are missing, and none to spare."""
    template, rollout, active, now = situation.template, situation.rollout, situation.active, situation.snapshot.now
    if rollout is None:
        return Plan()
    updated = active.where(lambda vmi: is_updated(vmi, template))
    if len(updated) == len(active):
        return Plan()
    protected = active.where(lambda vmi: not is_updated(vmi, template) and is_protected(vmi.metadata))
    one, many = "outdated VMI is protected, so it is", "outdated VMIs are protected, so they are"
    text = f"rollout: {counted(len(protected), one, many)} not replaced"
    held = wait_for_protected(protected, text, stall="UpdateHeld")
    unprotected = active.where(lambda vmi: not is_updated(vmi, template) and not is_protected(vmi.metadata))
    outdated = unprotected.where(lambda vmi: not reason_to_spare_vmi(vmi, now))
    spared = hold_spared(tuple(unprotected.where(lambda vmi: bool(reason_to_spare_vmi(vmi, now)))), now, Cause.UPDATE)
    # Only a replacement of an early failure can be ready and unproven.
    unproven = [
        vmi for vmi in updated.where(lambda vmi: replaces_failure(vmi) or not is_ready(vmi)) if not is_proven(vmi, now)
    ]
    serving = active.where(lambda vmi: is_ready(vmi) and not drains(vmi))
    unavailable = situation.target.kept - len(serving) + sum(map(is_ready, unproven))
    # Ready VMIs of the surge take the place of outdated VMIs. Other surplus VMIs do not.
    allowance = rollout.max_unavailable - max(unavailable, -situation.target.surge)
    if situation.has_regular and (allowance > 0 or outdated.some(lambda vmi: not is_ready(vmi) or drains(vmi))):
        ranked = [
            vmi
            for vmi in rank_for_removal(active, now)
            if not is_updated(vmi, template) and not reason_to_spare_vmi(vmi, now)
        ]
        replaced, number = _choose(ranked, allowance)
    else:
        replaced, number = [], len(outdated)
    text = f"rollout: {counted(number, 'outdated VMI waits', 'outdated VMIs wait')} until more are ready"
    deletes = Plan(stages=_stages(situation, replaced[: max(limit, 0)]))
    waits = waiting(text if number else "", Why.OTHERS)
    progress = join((deletes, waits, spared, held, _no_room(situation, rollout, number)))
    if replaced or not number:
        return progress
    unproven_uids = {vmi.metadata.uid for vmi in unproven}
    proven = (vmi for vmi in updated.where(is_ready) if vmi.metadata.uid not in unproven_uids)
    ready_at = [since for vmi in proven if (since := ready_since(vmi)) is not None]
    stuck = [(vmi_stuck_since(vmi, now), vmi.metadata.name) for vmi in unproven]
    stuck += [(failure.since, failure.vmi.metadata.name) for failure in situation.back_off.failures]
    stuck = [(max((since, *ready_at)), name) for since, name in stuck]
    deadline = situation.intent.settings.deadline
    progress = watch_progress(progress, stuck, deadline, now=now, template=template.hash)
    return join((progress, wake_at([next_proof(unproven, now)], now)))


def plan_left_out(situation: Situation) -> Plan:
    """Say how many VMIs stay outdated without a valid rolling update, unless another controller owns the set."""
    intent, snapshot, active = situation.intent, situation.snapshot, situation.active
    is_ours = ADOPTED_TEMPLATE in annotations_of(snapshot.owner.metadata) or active.some(has_hash)
    if intent.rolling is not None or not is_ours:
        return Plan()
    outdated = len(active.where(lambda vmi: not is_updated(vmi, intent.template)))
    are, so = ("1 VMI is", "it stays so") if outdated == 1 else (f"{outdated} VMIs are", "they stay so")
    text = f"{are} outdated, and without the annotation {ROLLING_UPDATE} {so}"
    if intent.rolls_out:
        beginning = f"annotation {ROLLING_UPDATE} "
        text = next((each.text for each in snapshot.wrong_annotations if each.message.startswith(beginning)), text)
    return waiting(text if outdated else "", Why.BY_HAND)


def _stages(situation: Situation, replaced: list[VirtualMachineInstance]) -> tuple[Stage, ...]:
    if not replaced:
        return ()
    revision = revision_number(situation.snapshot, situation.template.hash)
    why = f"its template is older than the set's template (revision {revision})"
    successor, selector = successor_of(situation), situation.intent.selector
    deletes = (
        delete_of(situation.snapshot, vmi, why, cause=Cause.UPDATE, successor=successor, selector=selector)
        for vmi in replaced
    )
    return stage_of(deletes, essential=True)


def _no_room(situation: Situation, rollout: Rollout, waiting: int) -> Plan:
    """Return a plan that says why outdated VMIs wait if the limit of replicas leaves no room for the surge."""
    most = situation.snapshot.max_replicas
    target = situation.target
    if not waiting or rollout.max_unavailable or target.surge or target.regular < most or not most:
        return Plan()
    left = counted(waiting, "outdated VMI is", "outdated VMIs are")
    message = f"{left} not replaced: --max-replicas {most} leaves no room for maxSurge"
    notice = Notice(reason="UpdateHeld", message=message, once=f"no surge {target.template.hash}")
    return Plan(waits=(Wait(text=message, why=Why.USER),), notices=(notice,))


def vmi_stuck_since(vmi: VirtualMachineInstance, now: datetime) -> datetime:
    """Return when this VMI, or the first of its failures, became unready. During the boot, `Ready` does not count."""
    since, started = failing_since(vmi, now), entered(vmi, "Running")
    if trial_of(vmi).failures:
        return since
    timed = vmi.status is not None and vmi.status.phase_transition_timestamps is not None
    unready = unready_since(vmi) if not timed or started is not None else None
    return max(since, unready) if unready is not None else since


def _choose(outdated: list[VirtualMachineInstance], allowance: int) -> tuple[list[VirtualMachineInstance], int]:
    """Return the outdated VMIs to replace now, and how many wait. Ready ones use the `allowance`, unless they drain."""
    replaced, waiting = [], 0
    drained = sum(is_ready(vmi) and drains(vmi) for vmi in outdated) + min(allowance, 0)
    for vmi in outdated:
        if not is_ready(vmi):
            replaced.append(vmi)
        elif (drained if drains(vmi) else allowance) > 0:
            drained, allowance = (drained - 1, allowance) if drains(vmi) else (drained, allowance - 1)
            replaced.append(vmi)
        else:
            waiting += 1
    return replaced, waiting


def drains(vmi: VirtualMachineInstance) -> bool:
    return is_draining(vmi.metadata)


def rollout_of(situation: Situation) -> rollback.Rollout:
    """Return what the VMIs show. Without a rolling update, they do not return."""
    intent, snapshot, template = situation.intent, situation.snapshot, situation.template
    settings, owner = intent.settings, snapshot.owner.metadata
    revision, noted = set_revision_name(owner.name, template.hash), settings.ready_revision
    is_new = settings.returns and situation.target.rejected is None and noted != revision
    may_return = is_new and situation.rollout is not None
    if may_return and not noted:
        # The first template of a set has no way back.
        may_return = situation.active.some(lambda vmi: not is_updated(vmi, template))
    ready, ready_at = _ready_revision(situation) if is_new else ("", None)
    return rollback.Rollout(
        owner=owner,
        settings=settings,
        resource=snapshot.replicasets,
        digest=intent.template.hash,
        revision=revision,
        ready=ready,
        ready_at=ready_at,
        unready=_unready(situation) if may_return else (),
        usable=usable_in(snapshot, intent),
    )


def _ready_revision(situation: Situation) -> tuple[str, datetime | None]:
    """Return the revision of all wanted VMIs if all are ready, or "" and the time at which the next is proven."""
    snapshot, intent, active = situation.snapshot, situation.intent, situation.active
    hashes = set(map(situation.template.hash_of, active.traits()))
    short = active.where(lambda vmi: not is_ready(vmi) or (replaces_failure(vmi) and not is_proven(vmi, snapshot.now)))
    if len(hashes) != 1 or short or not situation.has_regular:
        return "", next_proof(short, snapshot.now)
    name = set_revision_name(snapshot.owner.metadata.name, min(hashes))
    return "" if isinstance(usable_in(snapshot, intent)(name), str) else name, None


def _unready(situation: Situation) -> Iterator[tuple[datetime, str]]:
    """Yield the VMIs of the new template that are not ready or have failed early, not adopted ones without a hash."""
    now, template = situation.snapshot.now, situation.template
    of_template = situation.active.where(lambda vmi: has_hash(vmi) and is_updated(vmi, template))
    stuck = of_template.where(lambda vmi: not is_ready(vmi) and tells_of_template(vmi))
    for group in stuck.groups:
        yield vmi_stuck_since(group.traits, now), min(each.metadata.name for each in group)
    for failure in situation.back_off.failures:
        if has_hash(failure.vmi) and tells_of_template(failure.vmi):
            yield failure.since, failure.vmi.metadata.name
