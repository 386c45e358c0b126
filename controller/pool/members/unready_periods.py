"""Unready periods: the times during which VMs of a pool are not ready (P14, P15).

KubeVirt sets a new `lastTransitionTime` whenever the status or the reason of a condition changes. In a crash loop, the
condition `Ready` changes at each start. So this condition does not show how long the VM has been in the crash loop. An
unready period shows this, because a short ready time does not end the period. The period ends when the VM has been
ready for `STEADY`. A period belongs to one VM, identified by its UID.

The periods of a pool are computed from the previous periods and the present VMs and VMIs. The controller keeps the
periods in memory, and writes long periods to the pool's annotation `vmherd.dev/unready`. So the periods survive a
restart of the controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.conditions import with_timezone
from controller.kubevirt import vmis
from controller.kubevirt.annotations import UNREADY
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vms import is_deleting, is_meant_to_run, revision_of, start_failures_of
from controller.pool.members.notes import read_note
from informers.meta import ObjectMeta

STEADY: Final = timedelta(seconds=30)
"""After a VM has been ready for this time, its unready period ends."""

ABSENCE: Final = timedelta(minutes=5)
"""The controller keeps the unready period of a deleted VM for this time. A new VM with the same name and the same
revision continues the time of the deleted VM.
"""

NOTE_AFTER: Final = timedelta(seconds=30)
"""The age at which an unready period needs an entry in the annotation."""

CLOCK_SKEW: Final = timedelta(minutes=5)
"""The maximum difference between the clocks of two leaders. An entry further in the future is invalid."""


class UnreadyNote(Struct, frozen=True, array_like=True):
    """An entry of the annotation `vmherd.dev/unready`: the UID of a VM, and the start of its unready period."""

    uid: str
    since: datetime


class UnreadyPeriod(Struct, frozen=True, gc=False):
    """The unready period of the VM `uid`.

    The field `since` is the start of the period. `template_since` is the time since which the VM has been unready with
    the revision `revision`. If the VM is recreated with the same revision, `template_since` does not change. `ready_at`
    is None if the VM is not ready now. Otherwise `ready_at` is the time at which the VM became ready, or was stopped by
    a user. `was_ready` is true if the VM was ready during the period. `crashes` is true if the VM was ready during the
    period and then became unready again. `gone_at` is the time of the first snapshot without the VM, or None.
    """

    uid: str
    since: datetime
    revision: str
    template_since: datetime
    ready_at: datetime | None = None
    was_ready: bool = False
    crashes: bool = False
    gone_at: datetime | None = None

    def has_ended(self, now: datetime) -> bool:
        """Return True if the VM has been ready for `STEADY`."""
        return self.ready_at is not None and now - self.ready_at >= STEADY

    @property
    def traits(self) -> tuple[object, ...]:
        """All fields but the UID. The periods of many VMs can have equal traits."""
        return (self.since, self.revision, self.template_since, self.ready_at, self.was_ready, self.crashes)

    @property
    def due_at(self) -> datetime | None:
        """The time at which the period ends if the VM does not change, or None."""
        if self.gone_at is not None:
            return self.gone_at + ABSENCE
        return self.ready_at + STEADY if self.ready_at is not None else None


def read_notes(pool: ObjectMeta, now: datetime) -> Mapping[int, UnreadyNote]:
    """Return the valid entries of the pool's annotation, by ordinal."""
    notes = read_note(pool, UNREADY, UnreadyNote)
    return {
        ordinal: note
        for ordinal, note in notes.items()
        if note.since.tzinfo is not None and note.since - now <= CLOCK_SKEW
    }


def period_of_absent(previous: UnreadyPeriod | None, now: datetime) -> UnreadyPeriod | None:
    """Return the unready period of a VM that does not exist. `previous` is its period in the last snapshot."""
    if previous is None or previous.gone_at is None:
        return replace(previous, gone_at=now) if previous is not None else None
    return previous if now - previous.gone_at < ABSENCE else None


def next_period(
    previous: UnreadyPeriod | None,
    vm: VirtualMachine,
    vmi: VirtualMachineInstance | None,
    note: UnreadyNote | None,
    now: datetime,
) -> UnreadyPeriod | None:
    """Return the unready period of a VM, or None if the VM has none.

    `previous` is the period of this name in the last snapshot. `note` is the entry of the ordinal in the annotation. If
    neither the VM nor its VMI nor the note has changed, the result is equal to `previous` until `previous.due_at`.

    An ended period is kept until the VM's entry in the annotation is removed. The reason: if there is no period, an
    entry in the annotation starts a new period.
    """
    is_up = vmi is not None and vmis.is_ready(vmi) and vmis.is_active(vmi)
    if previous is None and note is None and is_up:
        return None
    if is_deleting(vm):
        return previous
    uid, revision = vm.metadata.uid, revision_of(vm)
    if note is not None and note.uid != uid:
        note = None
    same = previous if previous is not None and previous.uid == uid else None
    # The state of an unreadable VM or VMI is unknown. It counts as stopped, so its unready period does not grow.
    if is_up or not is_meant_to_run(vm) or (vmi is not None and vmi.undecodable):
        if same is None and note is not None:
            ready_at = (vmis.ready_since(vmi) if vmi is not None else None) or now
            same = UnreadyPeriod(uid, _noted_since(vm, vmi, note, now), revision, now, min(ready_at, now))
        if same is None:
            return None
        same = replace(same, ready_at=same.ready_at or now, was_ready=same.was_ready or is_up, gone_at=None)
        return same if note is not None or not same.has_ended(now) else None
    if same is not None and not same.has_ended(now) and not _is_restart(same, vm, vmi):
        template_since = same.template_since if same.revision == revision else now
        return replace(
            same,
            revision=revision,
            template_since=template_since,
            ready_at=None,
            crashes=same.was_ready,
            gone_at=None,
        )
    since = _noted_since(vm, vmi, note, now) if note is not None and same is None else now
    template_since = since
    # A recreated VM with the same template continues the time of its predecessor.
    if previous is not None and same is None and previous.revision == revision and not previous.has_ended(now):
        template_since = min(previous.template_since, since)
    return UnreadyPeriod(uid, since, revision, template_since)


def _is_restart(period: UnreadyPeriod, vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> bool:
    """Return True if a user or a rollout restarts a ready VM. A crash of the guest is not a restart."""
    if period.ready_at is None:
        return False
    is_stopped = vmi is not None and vmis.is_deleting(vmi) and not vmis.is_final(vmi)
    return is_stopped or period.revision != revision_of(vm)


def _noted_since(vm: VirtualMachine, vmi: VirtualMachineInstance | None, note: UnreadyNote, now: datetime) -> datetime:
    """Return the start of the VM's unready period from the annotation.

    If the time in the annotation is in the future, return `now`. If the time is before the creation of the VM, return
    the creation time. If the VM was restarted since the entry was written, the VM may have been ready in the meantime,
    because the annotation can have entries of ended periods. Then return `now`.
    """
    created = with_timezone(vm.metadata.creation_timestamp)
    since = min(note.since if created is None else max(note.since, created), now)
    return now if _is_restarted(vm, vmi, since) else since


def _is_restarted(vm: VirtualMachine, vmi: VirtualMachineInstance | None, since: datetime) -> bool:
    """Return True if the VM has another VMI than at the time of the entry, although KubeVirt counts no failed starts.

    KubeVirt sets the count to 0 when a VMI runs.
    """
    started = with_timezone(vmi.metadata.creation_timestamp) if vmi is not None else None
    has_same_vmi = started is not None and started - since <= NOTE_AFTER
    return not has_same_vmi and not start_failures_of(vm)
