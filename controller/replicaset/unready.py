"""The replacement of VMIs that run but are not ready (R4a).

After the time in `vmherd.dev/replace-unready-after-seconds`, a VMI is replaced and counts as an early failure, so the
delays grow. At most a quarter, or one, is replaced at a time: a common cause does not restart all VMIs of a set.
"""

from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.conditions import with_timezone
from controller.kubevirt.annotations import is_protected
from controller.kubevirt.busy import busy_reason
from controller.kubevirt.delicate import delicate_reason_of_vmi
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import entered, is_ready, is_running, unready_since
from controller.replicas.conditions import counted
from controller.replicas.draining import HEALING, guest_of_vmi, is_draining, must_drain
from controller.replicaset.back_off import Creates, EarlyFailure, delay_after, failing_since, trial_of
from controller.replicaset.scale import creates_of, delete_of
from controller.replicaset.situation import Situation
from controller.replicaset.template import is_updated
from controller.replicaset.traits import replaces_failure
from controller.runtime.actions import Cause, Plan, Stage, stage_of, waiting

SHARE: Final = 4


class UnreadyVMI(Struct, frozen=True):
    vmi: VirtualMachineInstance
    failures: int
    due: datetime


def plan_unready(situation: Situation, *, limit: int) -> Plan:
    """Plan to replace at most `limit` VMIs that have not been ready for too long: first deletes, then creates."""
    now, after = situation.snapshot.now, situation.intent.settings.replace_unready_after
    if after is None:
        return Plan()
    unready = _unready_vmis(situation, after)
    overdue = [each for each in unready if each.due <= now]
    chosen = overdue[: max(min(_slots(situation, overdue), limit), 0)]
    number = len(overdue) - len(chosen)
    waits = counted(number, "VMI that is not ready waits", "VMIs that are not ready wait")
    next_times = [(each.due - now).total_seconds() for each in unready if each.due > now]
    return replace(
        waiting(f"{waits} for the replacements of others" if number else ""),
        stages=_stages(situation, chosen, int(after.total_seconds())) if chosen else (),
        requeue_after_s=min(next_times, default=None),
    )


def _unready_vmis(situation: Situation, after: timedelta) -> list[UnreadyVMI]:
    """VMIs that drain, and then VMIs that replaced fewer failed VMIs, come first."""
    snapshot, active = situation.snapshot, situation.active
    found = []
    for vmi in active.where(lambda vmi: is_running(vmi) and not is_ready(vmi) and not is_protected(vmi.metadata)):
        if delicate_reason_of_vmi(vmi) or busy_reason(vmi, snapshot.now):
            continue
        if situation.intent.rolls_out and not is_updated(vmi, situation.template):
            continue  # The rollout replaces this VMI.
        failures = trial_of(vmi).failures + 1
        since = min(_unready_since(vmi) or snapshot.now, snapshot.now)
        found.append(UnreadyVMI(vmi, failures, since + after + delay_after(failures)))
    found.sort(key=lambda each: (not is_draining(each.vmi.metadata), each.failures, each.due, each.vmi.metadata.name))
    return found


def _unready_since(vmi: VirtualMachineInstance) -> datetime | None:
    """Return when the running VMI became unready, not before Running: KubeVirt changes the time until then."""
    started = entered(vmi, "Running") or with_timezone(vmi.metadata.creation_timestamp)
    times = [time for time in (started, unready_since(vmi)) if time is not None]
    return max(times, default=None)


def _slots(situation: Situation, overdue: list[UnreadyVMI]) -> int:
    """Return the number of VMIs that may be replaced now. Each replacement that is not ready yet reduces the number."""
    overdue_uids = {each.vmi.metadata.uid for each in overdue}
    starting = sum(
        trial_of(vmi).failures > 0 and vmi.metadata.uid not in overdue_uids
        for vmi in situation.active.where(lambda vmi: replaces_failure(vmi) and not is_ready(vmi))
    )
    return max(situation.target.regular // SHARE, 1) - starting


def _stages(situation: Situation, chosen: list[UnreadyVMI], seconds: int) -> tuple[Stage, ...]:
    snapshot, template = situation.snapshot, situation.template
    why = f"not ready for longer than {seconds} s"
    # A VMI that must drain first is not deleted yet (P26), so nothing replaces it.
    going = [each for each in chosen if not _must_drain(situation, each.vmi)]
    missing = max(situation.missing + len(going), 0)
    replaced = tuple(
        EarlyFailure(each.vmi, each.failures, failing_since(each.vmi, snapshot.now), snapshot.now)
        for each in going
        if is_updated(each.vmi, template)
    )[:missing]
    fresh = min(len(going), missing) - len(replaced)
    creates = creates_of(situation, Creates(replaced, fresh), "replaces a VMI that was not ready")
    successor = creates[0].body if creates else b""
    selector = situation.intent.selector if creates else None
    deletes = (
        delete_of(snapshot, each.vmi, why, cause=Cause.HEALING, successor=successor, selector=selector)
        for each in chosen
    )
    return (*stage_of(deletes, essential=True), *stage_of(creates, essential=True))


def _must_drain(situation: Situation, vmi: VirtualMachineInstance) -> bool:
    snapshot = situation.snapshot
    guest = guest_of_vmi(situation.intent.selector, vmi)
    return must_drain(situation.intent.settings.drain, guest, HEALING, snapshot.now)
