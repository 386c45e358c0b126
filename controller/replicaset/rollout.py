"""The rolling update. A replica set with the rolling-update annotation replaces its outdated VMIs step by step (R14).

A rollout deletes a ready VMI only while fewer than `maxUnavailable` VMIs are not ready. An outdated VMI that is not
ready is deleted at once, because its deletion makes no further VMI unavailable. With `maxSurge`, the scale-out creates
the VMIs of the surge, and each one that is ready allows one more deletion. If `maxUnavailable` VMIs of the new template
do not become ready, the rollout stops. If a VMI replaces an early failure (R4a), its condition `Ready` counts only
after it has been true for ten minutes. So a crash loop stops the rollout, too.

If no VMI of the template becomes ready within the progress deadline, the controller sends an Event. The Event is sent
once for each template. If failed VMIs are replaced, the deadline still counts from the creation of the first failed
VMI.
"""

from datetime import datetime

from controller.kubevirt.annotations import is_protected
from controller.kubevirt.delicate import reason_to_spare_vmi
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import entered, is_ready, ready_since, unready_since
from controller.replicas.draining import is_draining
from controller.replicas.notes import wake_at, watch_progress
from controller.replicaset.back_off import failing_since, is_proven, next_proof, trial_of
from controller.replicaset.intent import Rollout
from controller.replicaset.ranking import rank_for_removal
from controller.replicaset.scale import delete_of, hold_spared, successor_of, wait_for_protected
from controller.replicaset.situation import Situation
from controller.replicaset.template import is_updated
from controller.replicaset.traits import replaces_failure
from controller.runtime.actions import Cause, Notice, Plan, Stage, join
from controller.runtime.waits import Wait, Why


def plan_rollout(situation: Situation, *, limit: int) -> Plan:
    """Plan to delete at most `limit` outdated VMIs. A later reconciliation creates the new VMIs.

    While wanted VMIs are missing, the plan deletes no VMI. Paused, busy and unreadable VMIs stay.
    """
    template, rollout, active, now = situation.template, situation.rollout, situation.active, situation.snapshot.now
    if rollout is None:
        return Plan()
    updated = active.where(lambda vmi: is_updated(vmi, template))
    if len(updated) == len(active):
        return Plan()
    protected = active.where(lambda vmi: not is_updated(vmi, template) and is_protected(vmi.metadata))
    text = f"rollout: {len(protected)} outdated VMIs are protected, so they are not replaced"
    held = wait_for_protected(protected, text, stall="UpdateHeld")
    unprotected = active.where(lambda vmi: not is_updated(vmi, template) and not is_protected(vmi.metadata))
    outdated = unprotected.where(lambda vmi: not reason_to_spare_vmi(vmi, now))
    spared = hold_spared(tuple(unprotected.where(lambda vmi: bool(reason_to_spare_vmi(vmi, now)))), now, Cause.UPDATE)
    # Only a replacement of an early failure can be ready and unproven.
    unproven = [
        vmi for vmi in updated.where(lambda vmi: replaces_failure(vmi) or not is_ready(vmi)) if not is_proven(vmi, now)
    ]
    serving = active.where(lambda vmi: is_ready(vmi) and not drains(vmi))
    unavailable = situation.target.regular - len(serving) + sum(map(is_ready, unproven))
    # Ready VMIs of the surge take the place of outdated VMIs. Other surplus VMIs do not.
    allowance = rollout.max_unavailable - max(unavailable, -situation.target.surge)
    if situation.has_regular and (allowance > 0 or outdated.some(lambda vmi: not is_ready(vmi) or drains(vmi))):
        ranked = [
            vmi
            for vmi in rank_for_removal(active, now)
            if not is_updated(vmi, template) and not reason_to_spare_vmi(vmi, now)
        ]
        replaced, waiting = _choose(ranked, allowance)
    else:
        replaced, waiting = [], len(outdated)
    progress = Plan(
        stages=_stages(situation, replaced[: max(limit, 0)]),
        waits=(Wait(text=f"rollout: {waiting} outdated VMIs wait until more VMIs are ready", why=Why.OTHERS),)
        if waiting
        else (),
    )
    progress = join((progress, spared, held, _no_room(situation, rollout, waiting)))
    if replaced or not waiting:
        return progress
    unproven_uids = {vmi.metadata.uid for vmi in unproven}
    proven = (vmi for vmi in updated.where(is_ready) if vmi.metadata.uid not in unproven_uids)
    ready_at = [since for vmi in proven if (since := ready_since(vmi)) is not None]
    stuck = [(vmi_stuck_since(vmi, now), vmi.metadata.name) for vmi in unproven]
    stuck += [(failure.since, failure.vmi.metadata.name) for failure in situation.back_off.failures]
    stuck = [(max((since, *ready_at)), name) for since, name in stuck]
    deadline = situation.intent.settings.deadline
    progress = watch_progress(progress, stuck, deadline, now=now, template=template.hash)
    proof = next_proof(unproven, now)
    return join((progress, wake_at([proof] if proof is not None else [], now)))


def _stages(situation: Situation, replaced: list[VirtualMachineInstance]) -> tuple[Stage, ...]:
    if not replaced:
        return ()
    why, successor, selector = "created from an older template", successor_of(situation), situation.intent.selector
    deletes = (
        delete_of(situation.snapshot, vmi, why, cause=Cause.UPDATE, successor=successor, selector=selector)
        for vmi in replaced
    )
    return (Stage(tuple(deletes)),)


def _no_room(situation: Situation, rollout: Rollout, waiting: int) -> Plan:
    """Return a plan that says why outdated VMIs wait if the limit of replicas leaves no room for the surge."""
    most = situation.snapshot.max_replicas
    target = situation.target
    if not waiting or rollout.max_unavailable or target.surge or target.regular < most or not most:
        return Plan()
    message = f"{waiting} outdated VMIs are not replaced: --max-replicas {most} leaves no room for maxSurge"
    notice = Notice(reason="UpdateHeld", message=message, once=f"no surge {target.template.hash}")
    return Plan(waits=(Wait(text=message, why=Why.USER),), notices=(notice,))


def vmi_stuck_since(vmi: VirtualMachineInstance, now: datetime) -> datetime:
    """Return the time at which this VMI became unready.

    If the VMI replaces failed VMIs, return the creation time of the first of these VMIs.

    The transition time of the condition `Ready` is used only while the VMI runs. During the start of the VMI, KubeVirt
    changes this time with each new reason.
    """
    since, started = failing_since(vmi, now), entered(vmi, "Running")
    if trial_of(vmi).failures:
        return since
    timed = vmi.status is not None and vmi.status.phase_transition_timestamps is not None
    unready = unready_since(vmi) if not timed or started is not None else None
    return max(since, unready) if unready is not None else since


def _choose(outdated: list[VirtualMachineInstance], allowance: int) -> tuple[list[VirtualMachineInstance], int]:
    """Return the outdated VMIs to replace now, and the number of outdated VMIs that must wait.

    `allowance` is the number of ready VMIs that may be replaced now, beside those that drain. If it is negative, some
    of those that drain stay.
    """
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
