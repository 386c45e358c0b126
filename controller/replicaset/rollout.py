"""The rolling update. A replica set with the rolling-update annotation replaces its outdated VMIs step by step (R14).

A rollout deletes a ready VMI only while fewer than `maxUnavailable` VMIs are not ready. An outdated VMI that is not
ready is deleted at once, because its deletion makes no further VMI unavailable. If `maxUnavailable` VMIs of the new
template do not become ready, the rollout stops. If a VMI replaces an early failure (R4a), its condition `Ready` counts
only after it has been true for ten minutes. So a crash loop stops the rollout, too.

If no VMI of the template becomes ready within the progress deadline, the controller sends an Event. The Event is sent
once for each template. If failed VMIs are replaced, the deadline still counts from the creation of the first failed
VMI.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.field_error import FieldError, quoted
from controller.apimachinery.int_or_percent import parse_amount
from controller.kubevirt.annotations import ROLLING_UPDATE
from controller.kubevirt.costs import malformed_costs
from controller.kubevirt.progress import invalid_annotation, parse_deadline, watch_progress
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import entered, is_ready, ready_since, unready_since
from controller.replicaset.back_off import PROVEN_AFTER, EarlyFailure, failing_since, is_proven, trial_of
from controller.replicaset.intent import Intent
from controller.replicaset.ranking import rank_for_removal
from controller.replicaset.scale import delete_of
from controller.replicaset.snapshot import Snapshot
from controller.replicaset.template import is_updated
from controller.replicaset.traits import VMIs, has_deletion_cost, is_protected, replaces_failure
from controller.runtime.plan import Notice, Plan, Stage
from informers.meta import annotations_of

_MAX_UNAVAILABLE = re.compile(r"\s*maxUnavailable\s*=\s*(?P<amount>[0-9]{1,9}%?)\s*", re.ASCII)


class Rollout(Struct, frozen=True):
    """The settings of a rolling update.

    The rollout deletes ready VMIs only while fewer than `max_unavailable` VMIs are not ready. `notices` contains a
    notice if the progress deadline of the set is malformed.
    """

    max_unavailable: int
    progress_deadline: timedelta
    notices: tuple[Notice, ...] = ()


def parse_rollout(snapshot: Snapshot, wanted: int) -> Rollout | FieldError | None:
    """Parse the rolling-update annotation of the set, or return None if the set does not have this annotation."""
    annotations = annotations_of(snapshot.owner.metadata)
    text = annotations.get(ROLLING_UPDATE)
    if text is None:
        return None
    allowance = _parse_max_unavailable(text, wanted)
    if isinstance(allowance, FieldError):
        return allowance
    deadline = parse_deadline(snapshot.owner.metadata)
    return Rollout(allowance, deadline.after, deadline.notices)


def rolls_out(owner: ReplicaSet) -> bool:
    """Return True if the set has the rolling-update annotation. Such a set replaces all its outdated VMIs."""
    return ROLLING_UPDATE in annotations_of(owner.metadata)


def max_unavailable(owner: ReplicaSet) -> int | None:
    """Return the `maxUnavailable` of the rolling-update annotation, or None if it is absent or invalid."""
    wanted = 1 if owner.spec.replicas is None else owner.spec.replicas
    amount = _parse_max_unavailable(annotations_of(owner.metadata).get(ROLLING_UPDATE, ""), wanted)
    return None if isinstance(amount, FieldError) else amount


def plan_rollout(
    snapshot: Snapshot,
    intent: Intent,
    active: VMIs,
    failures: tuple[EarlyFailure, ...],
    *,
    limit: int,
) -> Plan:
    """Plan to delete at most `limit` outdated VMIs. A later reconciliation creates the new VMIs.

    While VMIs are missing, the plan deletes no VMI. `failures` are the early failures of the set.
    """
    rollout = parse_rollout(snapshot, intent.wanted)
    if rollout is None:
        return Plan()
    if isinstance(rollout, FieldError):
        return Plan(notices=(invalid_annotation(ROLLING_UPDATE, snapshot.owner.metadata, rollout.message),))
    now = snapshot.now
    updated = active.where(lambda vmi: is_updated(vmi, intent.template.hash))
    if len(updated) == len(active):
        return Plan(notices=rollout.notices)
    outdated = active.where(lambda vmi: not is_updated(vmi, intent.template.hash) and not is_protected(vmi))
    # Only a replacement of an early failure can be ready and unproven.
    unproven = [
        vmi for vmi in updated.where(lambda vmi: replaces_failure(vmi) or not is_ready(vmi)) if not is_proven(vmi, now)
    ]
    unavailable = max(intent.wanted - len(active.where(is_ready)) + sum(map(is_ready, unproven)), 0)
    allowance = rollout.max_unavailable - unavailable
    if len(active) >= intent.wanted and (allowance > 0 or outdated.some(lambda vmi: not is_ready(vmi))):
        hashed = intent.template.hash
        ranked = [vmi for vmi in rank_for_removal(active) if not is_updated(vmi, hashed)]
        replaced, waiting = _choose(ranked, allowance)
    else:
        replaced, waiting = [], len(outdated)
    deletes = tuple(delete_of(snapshot, vmi, "created from an older template") for vmi in replaced[: max(limit, 0)])
    progress = Plan(
        stages=(Stage(deletes),) if deletes else (),
        notices=rollout.notices + malformed_costs(active.where(has_deletion_cost)),
        held=f"rollout: {waiting} outdated VMIs wait until more VMIs are ready" if waiting else "",
    )
    if replaced or not waiting:
        return progress
    unproven_uids = {vmi.metadata.uid for vmi in unproven}
    proven = (vmi for vmi in updated.where(is_ready) if vmi.metadata.uid not in unproven_uids)
    ready_at = [since for vmi in proven if (since := ready_since(vmi)) is not None]
    stuck = [(stuck_since(vmi, now), vmi.metadata.name) for vmi in unproven]
    stuck += [(failure.since, failure.vmi.metadata.name) for failure in failures]
    stuck = [(max((since, *ready_at)), name) for since, name in stuck]
    progress = watch_progress(progress, stuck, rollout.progress_deadline, now=now, template=intent.template.hash)
    return _with_proofs(progress, unproven, now)


def _with_proofs(plan: Plan, unproven: list[VirtualMachineInstance], now: datetime) -> Plan:
    """Return the plan with a request for another reconciliation.

    This reconciliation starts when the first VMI in `unproven` has been ready for ten minutes.
    """
    ready_at = [since for since in map(ready_since, unproven) if since is not None]
    if not ready_at:
        return plan
    wake_s = (min(*ready_at, now) + PROVEN_AFTER - now).total_seconds()
    return replace(plan, requeue_after_s=min(wake_s, plan.requeue_after_s or wake_s))


def stuck_since(vmi: VirtualMachineInstance, now: datetime) -> datetime:
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

    `allowance` is the number of ready VMIs that may be replaced now.
    """
    replaced, waiting = [], 0
    for vmi in outdated:
        if not is_ready(vmi):
            replaced.append(vmi)
        elif allowance > 0:
            allowance -= 1
            replaced.append(vmi)
        else:
            waiting += 1
    return replaced, waiting


def _parse_max_unavailable(text: str, wanted: int) -> int | FieldError:
    match = _MAX_UNAVAILABLE.fullmatch(text)
    amount = parse_amount(match["amount"]) if match else None
    if amount is None:
        return FieldError(
            f"annotation {ROLLING_UPDATE} is {quoted(text)}: it must be maxUnavailable=N with N at least 1, "
            "or maxUnavailable=P% with P from 1 to 100; outdated VMIs are not replaced"
        )
    return amount.of(wanted)
