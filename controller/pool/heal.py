"""Healing: the controller replaces VMs that fail (P15).

Healing a VM takes two reconciliations. The first reconciliation announces the deletion in the pool's annotation
`vmherd.dev/healed`. A few seconds later, another reconciliation deletes the VM, if the VM still fails. So users have
time to see the failure. If the controller crashes, the next leader reads the healings from the annotation. A later
reconciliation creates a new VM with the same ordinal.

If `statePreservation` is Disabled, the VM is deleted in the foreground together with its disks. If `statePreservation`
is Offline or Online, the disks are kept, and the new VM uses them again. A VM whose kept disk causes the failure is not
healed, because a new VM would use the same disk. While KubeVirt works on the VM or its disks, for example during a
snapshot, the VM is not healed either. In both cases, an Event shows the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct

from controller.apimachinery.field_error import quoted
from controller.apimachinery.int_or_percent import Amount, parse_amount
from controller.kubevirt.annotations import MAX_UNHEALTHY
from controller.kubevirt.delicate import delicate_reason
from controller.kubevirt.progress import invalid_annotation
from controller.kubevirt.unready_setting import replace_unready_after
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import printable_status_of
from controller.pool.disks import add_finalizers, is_safe_to_delete
from controller.pool.failing import FailingVM, failing_vms
from controller.pool.heal_records import (
    ANNOUNCEMENT,
    Record,
    announcement_time,
    count_recovering,
    read_records,
    record_patch,
)
from controller.pool.intent import Intent
from controller.pool.ordinal_notes import MAX_ENTRIES
from controller.pool.scale import delete_of
from controller.pool.snapshot import Snapshot
from controller.pool.traits import VMs
from controller.pool.unready import open_period
from controller.runtime.plan import Cause, Notice, Plan, Stage, join
from informers.meta import annotations_of

MAX_NOTICES: Final = 10
"""The maximum number of Events about blocked healings in one reconciliation, for each kind of reason."""

DISK_STATES: Final = frozenset({"DataVolumeError", "ErrorPvcNotFound"})
"""The values of `printableStatus` that report a failure of the VM's disk."""

MAX_UNHEALTHY_DEFAULT: Final = Amount(50, percent=True)

TOO_MANY: Final = "healing is blocked: too many virtual machines fail at the same time"


class HealingPlan(Struct, frozen=True):
    """The plan of healing. `uids` are the UIDs of the VMs that this or a later reconciliation deletes."""

    plan: Plan = Plan()
    uids: frozenset[str] = frozenset()


class _Sorted(Struct, frozen=True):
    """The failing VMs whose replacement is due. Only the VMs in `curable` may be deleted now. `obstacles` has the
    Events that say why the other VMs must wait.
    """

    curable: list[FailingVM]
    obstacles: Plan


def plan_healing(snapshot: Snapshot, intent: Intent, members: VMs) -> HealingPlan:
    """Plan the deletion of as many failing VMs as the limits allow.

    The plan requests another reconciliation for the time of the next change. A change is one of these: a VM is due for
    replacement, or a recreated VM becomes available or exceeds `START_TIMEOUT`.

    At most `maxUnavailable` healed VMs may be unavailable at the same time. Healing does not wait for VMs that a
    rollout restarts. A failing VM is already unavailable, so healing makes no further VM unavailable. The rollout
    counts healed VMs as unavailable.
    """
    setting = replace_unready_after(snapshot.owner.metadata)
    if intent.healing is None and setting.after is None:
        return HealingPlan(Plan(notices=setting.notices))
    records = read_records(snapshot, intent)
    failing = failing_vms(snapshot, members, records, healing=intent.healing, unready_limit=setting.after)
    certain = [each for each in failing if each.is_certain]
    recovering = count_recovering(snapshot, intent, members, records, {each.vm.metadata.uid for each in certain})
    next_times = [each.due for each in failing if each.due > snapshot.now]
    if recovering.until is not None:
        next_times.append(recovering.until)
    wake = _wake(snapshot, next_times)
    due = _sort_due(snapshot, intent, [each for each in failing if each.due <= snapshot.now])
    parts = [Plan(notices=setting.notices), due.obstacles, wake]
    if not due.curable:
        return HealingPlan(join(parts))
    limit, notices = _max_unhealthy(snapshot, len(members) + recovering.absent)
    parts.append(Plan(notices=notices))
    unhealthy = len(certain) + recovering.number
    if unhealthy > limit:
        notice = _too_many_notice(snapshot, members, unhealthy, limit)
        return HealingPlan(join([*parts, Plan(held=TOO_MANY, notices=(notice,))]))
    max_healed = min(intent.most_unavailable, MAX_ENTRIES)
    slots = max(min(max_healed - recovering.number, snapshot.limits.burst), 0)
    chosen = due.curable[:slots]
    waiting = len(due.curable) - len(chosen)
    held = f"healing: {waiting} virtual machines wait until others are available" if waiting else ""
    parts += [_heal(snapshot, chosen, records, preserve=intent.scale_in.preserve), Plan(held=held)]
    return HealingPlan(join(parts), frozenset(each.vm.metadata.uid for each in chosen))


def _wake(snapshot: Snapshot, times: Iterable[datetime]) -> Plan:
    first = min(times, default=None)
    return Plan(requeue_after_s=(first - snapshot.now).total_seconds() if first is not None else None)


def _sort_due(snapshot: Snapshot, intent: Intent, due: list[FailingVM]) -> _Sorted:
    """Separate the VMs that may be deleted now from the other VMs.

    VMs whose deletion was announced come first, then VMs with fewer healings.
    """
    curable, with_failing_disk, delicate = [], [], []
    for each in due:
        reason = delicate_reason(each.vm, snapshot.vmi_of(each.vm))
        if intent.scale_in.preserve and printable_status_of(each.vm) in DISK_STATES:
            with_failing_disk.append(each)
        elif reason:
            delicate.append((each, reason))
        else:
            curable.append(each)
    curable.sort(key=lambda each: (each.announced is None, each.healed, each.due, each.ordinal))
    held = []
    if with_failing_disk:
        held.append("healing is blocked: statePreservation keeps the disks that fail")
    if delicate:
        held.append(f"healing: {len(delicate)} virtual machines wait, because {delicate[0][1]}")
    notices = (
        *map(_disk_notice, with_failing_disk[:MAX_NOTICES]),
        *(_delicate_notice(each.vm, reason) for each, reason in delicate[:MAX_NOTICES]),
    )
    return _Sorted(curable, Plan(notices=notices, held="; ".join(held)))


def _heal(snapshot: Snapshot, chosen: list[FailingVM], records: Mapping[int, Record], *, preserve: bool) -> Plan:
    """Plan the announcements and the deletions of the chosen VMs.

    If the controller crashes after an announcement, the next leader deletes the same VMs, and does not count the
    healing again. With `preserve`, a VM without the pool finalizer gets the finalizer before the VM is deleted (P10).
    """
    unsafe = [each.vm for each in chosen if preserve and not is_safe_to_delete(snapshot, each.vm)]
    announced = {each.ordinal: each.vm for each in chosen if each.announced is None}
    deletes = tuple(
        delete_of(each.vm, f"healing: {each.why}", foreground=not preserve, keep_disks=preserve, cause=Cause.HEALING)
        for each in chosen
        if each.announced is not None and each.announced <= snapshot.now and each.vm not in unsafe
    )
    stages = [*add_finalizers(unsafe)]
    if announced:
        stages.append(Stage((record_patch(snapshot, records, announced),)))
    if deletes:
        stages.append(Stage(deletes))
    times = [each.announced for each in chosen if each.announced is not None and each.announced > snapshot.now]
    if announced:
        times.append(announcement_time(snapshot.now) + ANNOUNCEMENT)
    soon = len(chosen) - len(deletes)
    held = f"healing: {soon} virtual machines are replaced in a few seconds" if soon else ""
    return join([Plan(stages=tuple(stages), held=held), _wake(snapshot, times)])


def _max_unhealthy(snapshot: Snapshot, members: int) -> tuple[int, tuple[Notice, ...]]:
    """Return the number of VMs that may fail at the same time. Also return an Event if the annotation `MAX_UNHEALTHY`
    cannot be parsed.
    """
    meta = snapshot.owner.metadata
    text = annotations_of(meta).get(MAX_UNHEALTHY)
    amount = parse_amount(text) if text is not None else MAX_UNHEALTHY_DEFAULT
    if amount is not None:
        return amount.of(members), ()
    message = (
        f"annotation {MAX_UNHEALTHY} is {quoted(text or '')}: it must be a number from 1, "
        'or "1%" to "100%", so it counts as 50%'
    )
    return MAX_UNHEALTHY_DEFAULT.of(members), (invalid_annotation(MAX_UNHEALTHY, meta, message),)


def _too_many_notice(snapshot: Snapshot, members: Iterable[VirtualMachine], failing: int, limit: int) -> Notice:
    """Return an Event about blocked healing, because too many VMs fail.

    The Event is sent once for one series of failures. Another series begins if the spec changes, or if the VM with the
    longest unready period recovers.
    """
    periods = [period for vm in members if (period := open_period(snapshot, vm)) is not None]
    first = min(((period.since, period.uid) for period in periods), default="")
    return Notice(
        reason="HealingHeld",
        message=(
            f"{failing} virtual machines fail at the same time, the limit is {limit}; "
            "no virtual machine is replaced until fewer fail"
        ),
        once=f"healing held {snapshot.owner.metadata.generation} {first}",
    )


def _disk_notice(failing: FailingVM) -> Notice:
    """Return an Event about a VM that is not healed because its disk fails and the pool keeps the disk."""
    name, state = failing.vm.metadata.name, printable_status_of(failing.vm)
    return Notice(
        reason="HealingHeld",
        message=(
            f"{name} is not replaced: its disk fails ({state}), and statePreservation keeps the disk, so a new "
            f"virtual machine would use the same disk; repair or delete the disk, or delete {name}"
        ),
        once=f"healing held {failing.vm.metadata.uid}",
    )


def _delicate_notice(vm: VirtualMachine, reason: str) -> Notice:
    """Return an Event about a failing VM that must not be healed now. The argument `reason` is the text of
    `delicate_reason`.
    """
    return Notice(
        reason="HealingHeld",
        message=f"{vm.metadata.name} fails, but is not replaced now: {reason}",
        once=f"healing held {vm.metadata.uid} {reason}",
    )
