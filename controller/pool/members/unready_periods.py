"""Unready periods: the times during which VMs of a pool are not ready (P14, P15).

KubeVirt sets a new `lastTransitionTime` whenever the status or the reason of a condition changes. In a crash loop, the
condition `Ready` changes at each start. So this condition does not show how long the VM has been in the crash loop. An
unready period shows this, because a short ready time does not end the period. The period ends when the VM has been
ready for `STEADY`. A period belongs to one VM, identified by its UID.

The periods of a pool are computed from the previous periods and the present VMs and VMIs. The controller keeps the
periods in memory, and writes long periods to the pool's annotation `vmherd.dev/unready`. So the periods survive a
restart of the controller.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.conditions import with_timezone
from controller.kubevirt import vmis
from controller.kubevirt.annotations import REVISION_NAME, UNREADY
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vms import is_deleting, is_meant_to_run, revision_of, start_failures_of
from controller.pool.members.notes import read_note
from informers.meta import ObjectMeta, labels_of

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


class Down(Struct, frozen=True, gc=False):
    """The VM `uid` is not ready.

    The field `since` is the start of the period. `template_since` is the time since which the VM has been unready with
    the revision `revision` of its VMI, or of a VMI that should exist. If the VM is recreated with the same
    revision, `template_since` does not change. `crashes` is true if the VM was ready during the period and then became
    unready again. `silent_since` is the time since which the node of the VM does not answer, also while its Pod is
    terminating, or None (P28).
    """

    uid: str
    since: datetime
    revision: str
    template_since: datetime
    crashes: bool = False
    silent_since: datetime | None = None


class Recovering(Struct, frozen=True, gc=False):
    """The VM is ready, or was stopped by a user, since the time `at`. `down` is the state of the VM before.

    `was_ready` is true if the VM was ready during the period.
    """

    down: Down
    at: datetime
    was_ready: bool


class Gone(Struct, frozen=True, gc=False):
    """The VM does not exist since the snapshot of the time `at`. `last` is the state of the VM before."""

    last: Down | Recovering
    at: datetime


UnreadyPeriod: TypeAlias = Down | Recovering | Gone
"""The state of the unready period of one name in the pool. None means that there is no period."""


class Observation(Struct, frozen=True, gc=False):
    """What a snapshot shows of a VM. `note` is the entry of this VM in the annotation, or None."""

    vm: VirtualMachine
    vmi: VirtualMachineInstance | None
    note: UnreadyNote | None = None

    @property
    def uid(self) -> str:
        return self.vm.metadata.uid

    @property
    def revision(self) -> str:
        """The revision of the VMI, or the one that its next VMI gets."""
        of_vmi = labels_of(self.vmi.metadata).get(REVISION_NAME) if self.vmi is not None else None
        return of_vmi or revision_of(self.vm)

    @property
    def waits_to_start(self) -> bool:
        """Return True while KubeVirt waits after a failed start."""
        return self.vmi is None and bool(start_failures_of(self.vm))

    @property
    def is_up(self) -> bool:
        return self.vmi is not None and vmis.is_ready(self.vmi) and vmis.is_active(self.vmi)

    @property
    def is_calm(self) -> bool:
        """Return True if the unready period does not grow: the VM is ready, stopped, or its state is unknown."""
        return self.is_up or not is_meant_to_run(self.vm) or (self.vmi is not None and bool(self.vmi.undecodable))

    @property
    def is_stopping(self) -> bool:
        """Return True if the VMI is terminating before its guest has ended."""
        return self.vmi is not None and vmis.is_deleting(self.vmi) and not vmis.is_final(self.vmi)


def down_of(period: Down | Recovering) -> Down:
    return period.down if isinstance(period, Recovering) else period


def without_uid(period: Down | Recovering) -> Down | Recovering:
    """Return all facts but the UID. The periods of many VMs can be equal without it."""
    anonymous = replace(down_of(period), uid="")
    return replace(period, down=anonymous) if isinstance(period, Recovering) else anonymous


def due_at(period: UnreadyPeriod) -> datetime | None:
    """Return the time at which the period ends if the VM does not change, or None."""
    match period:
        case Down():
            return None
        case Recovering(at=at):
            return at + STEADY
        case Gone(at=at):
            return at + ABSENCE


def has_ended(period: Down | Recovering, now: datetime) -> bool:
    return isinstance(period, Recovering) and now - period.at >= STEADY


def read_notes(pool: ObjectMeta, now: datetime) -> Mapping[int, UnreadyNote]:
    """Return the valid entries of the pool's annotation, by ordinal."""
    notes = read_note(pool, UNREADY, UnreadyNote)
    return {
        ordinal: note
        for ordinal, note in notes.items()
        if note.since.tzinfo is not None and note.since - now <= CLOCK_SKEW
    }


def next_period(previous: UnreadyPeriod | None, seen: Observation | None, now: datetime) -> UnreadyPeriod | None:
    """Return the unready period of a name in the pool.

    `previous` is the period of this name in the last snapshot. `seen` is None if the pool has no VM with this name. If
    neither the VM nor its VMI nor the note has changed, the result is equal to `previous` until `due_at(previous)`.

    An ended period is kept until the VM's entry in the annotation is removed. The reason: if there is no period, an
    entry in the annotation starts a new period.
    """
    period = _next_period(previous, seen, now)
    if not isinstance(period, Down) or seen is None or seen.vmi is None:
        return period
    silent = vmis.unready_since(seen.vmi) if vmis.is_out_of_reach(seen.vmi) else None
    if vmis.has_terminating_pod(seen.vmi):
        silent = period.silent_since
    return period if period.silent_since == silent else replace(period, silent_since=silent)


def _next_period(previous: UnreadyPeriod | None, seen: Observation | None, now: datetime) -> UnreadyPeriod | None:
    if seen is None:
        return _absent(previous, now)
    if is_deleting(seen.vm):
        return previous
    last = previous.last if isinstance(previous, Gone) else previous
    match last:
        case Down(uid=seen.uid) if seen.is_calm:
            return Recovering(last, now, was_ready=last.crashes or seen.is_up)
        case Down(uid=seen.uid):
            return _still_down(last, seen, now)
        case Recovering(down=Down(uid=seen.uid)) if seen.is_calm:
            is_over = has_ended(last, now) and seen.note is None
            return None if is_over else replace(last, was_ready=last.was_ready or seen.is_up)
        case Recovering(down=Down(uid=seen.uid)) if has_ended(last, now) or _is_restart(last, seen):
            return Down(seen.uid, now, seen.revision, template_since=now)
        case Recovering(down=Down(uid=seen.uid)):
            return replace(last.down, crashes=last.was_ready)
        case _ if seen.is_calm:
            return _noted_recovery(seen, seen.note, now) if seen.note is not None else None
        case _:
            return _first_down(last, seen, now)


def _absent(previous: UnreadyPeriod | None, now: datetime) -> Gone | None:
    match previous:
        case Down() | Recovering():
            return Gone(previous, now)
        case Gone(at=at) if now - at < ABSENCE:
            return previous
        case _:
            return None


def _still_down(period: Down, seen: Observation, now: datetime) -> Down:
    """Return the period of a VM that is still unready. A new revision begins another `template_since`."""
    revision = seen.revision
    return (
        period
        if seen.waits_to_start or period.revision == revision
        else replace(period, revision=revision, template_since=now)
    )


def _first_down(predecessor: Down | Recovering | None, seen: Observation, now: datetime) -> Down:
    """A recreated VM with the same template continues `template_since` of its predecessor."""
    revision = seen.revision
    since = _noted_since(seen, seen.note, now) if seen.note is not None else now
    template_since = since
    if predecessor is not None and not has_ended(predecessor, now) and down_of(predecessor).revision == revision:
        template_since = min(down_of(predecessor).template_since, since)
    return Down(seen.uid, since, revision, template_since)


def _noted_recovery(seen: Observation, note: UnreadyNote, now: datetime) -> Recovering:
    """Return the period of a ready VM that was unready in the time of an earlier leader."""
    down = Down(seen.uid, _noted_since(seen, note, now), seen.revision, template_since=now)
    ready_at = vmis.ready_since(seen.vmi) if seen.vmi is not None else None
    return Recovering(down, min(ready_at or now, now), was_ready=seen.is_up)


def _is_restart(period: Recovering, seen: Observation) -> bool:
    """Return True if a user or a rollout restarts a ready VM. A crash of the guest is not a restart."""
    return seen.is_stopping or not (seen.waits_to_start or period.down.revision == seen.revision)


def _noted_since(seen: Observation, note: UnreadyNote, now: datetime) -> datetime:
    """Return the start of the VM's unready period from the annotation.

    If the time in the annotation is in the future, return `now`. If the time is before the creation of the VM, return
    the creation time. If the VM was restarted since the entry was written, the VM may have been ready in the meantime,
    because the annotation can have entries of ended periods. Then return `now`.
    """
    created = with_timezone(seen.vm.metadata.creation_timestamp)
    since = min(note.since if created is None else max(note.since, created), now)
    return now if _is_restarted(seen, since) else since


def _is_restarted(seen: Observation, since: datetime) -> bool:
    """Return True if the VM has another VMI than at the time of the entry, although KubeVirt counts no failed starts.

    KubeVirt sets the count to 0 when a VMI runs.
    """
    started = with_timezone(seen.vmi.metadata.creation_timestamp) if seen.vmi is not None else None
    has_same_vmi = started is not None and started - since <= NOTE_AFTER
    return not has_same_vmi and not start_failures_of(seen.vm)
