"""Unready periods: the times during which VMs of a pool are not ready (P14, P15).

The conditions and creation times of a VM and its VMI show since when the VM is not ready, unless the VM is in a crash
loop: then each start has new times. An unready period knows the time, because a short ready time does not end it. The
period ends when the VM has been ready for `STEADY`.

The controller computes the periods from the previous ones and the present VMs and VMIs. If the objects would show a
later time than a period, the pool's annotation `vmherd.dev/unready` has an entry. So the next leader and the plugin,
which have no previous periods, compute the same periods.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import astuple, replace

from controller.apimachinery.conditions import with_timezone
from controller.kubevirt import vmis, vms
from controller.kubevirt.annotations import REVISION_NAME, UNREADY, is_to_be_paused
from controller.kubevirt.standby import is_resting, woken_at
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.pool.members.notes import VALID_NUMBERS, read_note
from informers.meta import ObjectMeta, labels_of

STEADY: Final = timedelta(seconds=30)
"""After a VM has been ready for this time, its unready period ends."""

ABSENCE: Final = timedelta(minutes=5)
"""The controller keeps the unready period of a deleted VM for this time. A new VM with the same name and the same
revision continues the time of the deleted VM.
"""

CLOCK_SKEW: Final = timedelta(minutes=5)
"""The maximum difference between the clocks of two leaders. An entry further in the future is invalid."""


class UnreadyNote(Struct, frozen=True, array_like=True, gc=False):
    """An entry of the annotation: the VM `uid` is not ready since `since` with the revision of its VMI, or of one that
    should exist. A recreated VM continues the time of its predecessor, so `since` may be before its creation.

    `crashes` is the number of times that the guest ended soon after its start, or soon after it was ready. The last
    VMI that counts in it was created at `counted` or before. `silent_since` is the time since which the node of the VM
    does not answer, also while its Pod is terminating, or None (P28).
    """

    uid: str
    since: datetime
    revision: str = ""
    crashes: int = 0
    silent_since: datetime | None = None
    counted: datetime | None = None


class UnreadyPeriod(UnreadyNote, frozen=True, array_like=True, gc=False):
    """The state of one name in the pool. `up_since` is the time since which the VM is ready, or None. `gone_since` is
    the time of the first snapshot without the VM, or None.
    """

    up_since: datetime | None = None
    gone_since: datetime | None = None

    @property
    def note(self) -> UnreadyNote:
        return UnreadyNote(self.uid, self.since, self.revision, self.crashes, self.silent_since, self.counted)


class Observation(Struct, frozen=True, gc=False):
    """What a snapshot shows of a VM. `note` is the entry of its ordinal in the annotation, or None."""

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
        return of_vmi or vms.revision_of(self.vm)

    @property
    def is_up(self) -> bool:
        """Return True if the VMI is ready. If the VM says so, and there is no VMI, the cache of the VMIs is old."""
        return vms.is_ready(self.vm) if self.vmi is None else vmis.is_ready(self.vmi) and vmis.is_active(self.vmi)

    @property
    def is_stopping(self) -> bool:
        """Return True if the VMI was deleted before its guest ended, or because an update restarts the VM."""
        if self.vmi is None or not vmis.is_deleting(self.vmi):
            return False
        deleted, ended = vmis.terminating_since(self.vmi), vmis.entered(self.vmi, vmis.phase_of(self.vmi))
        is_first = not vmis.is_final(self.vmi) or (deleted is not None and ended is not None and deleted < ended)
        return is_first or self.revision != vms.revision_of(self.vm)

    def has_ended_since(self, up_since: datetime) -> bool:
        """Return True if the guest that was ready at this time has ended. A lost node or an I/O error ends no guest."""
        created = with_timezone(self.vmi.metadata.creation_timestamp) if self.vmi is not None else None
        return self.vmi is None or vmis.is_final(self.vmi) or (created is not None and created > up_since)

    def new_end(self, known: UnreadyNote) -> datetime | None:
        """Return the creation time of a VMI of this period whose guest has run and ended, if it does not count yet."""
        if self.vmi is None or not vmis.is_final(self.vmi) or self.is_stopping:
            return None
        created = with_timezone(self.vmi.metadata.creation_timestamp)
        is_new = created is not None and created >= known.since and (known.counted is None or created > known.counted)
        return created if is_new and vmis.entered(self.vmi, "Running") is not None else None


def due_at(period: UnreadyPeriod) -> datetime | None:
    """Return the time at which the period ends if the VM does not change, or None."""
    if period.gone_since is not None:
        return period.gone_since + ABSENCE
    return period.up_since + STEADY if period.up_since is not None else None


def has_ended(period: UnreadyPeriod, now: datetime) -> bool:
    return period.up_since is not None and now - period.up_since >= STEADY


def read_notes(pool: ObjectMeta, now: datetime) -> Mapping[int, UnreadyNote]:
    """Return the valid entries of the pool's annotation, by ordinal."""
    notes = read_note(pool, UNREADY, UnreadyNote)

    def is_valid(note: UnreadyNote) -> bool:
        times = filter(None, (note.since, note.silent_since, note.counted))
        return note.crashes in VALID_NUMBERS and all(each.tzinfo and each - now <= CLOCK_SKEW for each in times)

    return {ordinal: each for ordinal, each in notes.items() if is_valid(each)}


def shown_since(vm: VirtualMachine, vmi: VirtualMachineInstance | None, now: datetime) -> datetime | None:
    """Return the time since which the objects show that the VM is not ready, or None. A VM or a VMI that became unready
    less than `STEADY` after its creation counts as unready since its creation. But a VMI that is stopped may have been
    well, and a VM whose spec was changed may have been ready with its first VMI. The rest of a standby does not count.
    """
    since = vmis.unready_since(vmi) if vmi is not None else vms.unready_since(vm)
    if since is None:
        return None
    is_unchanged = (vm.metadata.generation or 1) == 1
    for each in () if Observation(vm, vmi).is_stopping else (vmi, vm if is_unchanged else None):
        created = with_timezone(each.metadata.creation_timestamp) if each is not None else None
        if created is not None and since - created < STEADY:
            since = min(since, created)
    return min(max(since, woken_at(vm.metadata) or since), now)


def next_period(previous: UnreadyPeriod | None, seen: Observation | None, now: datetime) -> UnreadyPeriod | None:
    """Return the unready period of a name in the pool. `seen` is None if the pool has no VM with this name.

    If neither the VM nor its VMI nor the note has changed, the result is equal to `previous` until `due_at(previous)`.
    An ended period is kept until the VM's entry in the annotation is removed, because an entry without a period starts
    a new one.
    """
    if seen is None:
        gone = previous and (previous.gone_since or now)
        return replace(previous, gone_since=gone) if previous and gone and now - gone < ABSENCE else None
    if vms.is_deleting(seen.vm):
        return previous or _noted(seen, now)
    if is_resting(seen.vm.metadata) or is_to_be_paused(seen.vm.metadata):
        return None  # the time of its rest does not count
    if not vms.should_run(seen.vm, seen.vmi) or (seen.vmi is not None and seen.vmi.undecodable):
        return None  # it is stopped, or its state is unknown
    known, woken = previous or _noted(seen, now), woken_at(seen.vm.metadata)
    if known is not None and woken is not None and known.since < woken - timedelta(seconds=1):
        known = None
    if known is not None:
        is_same = known.uid == seen.uid
        known = replace(known, uid=seen.uid, gone_since=None)
        known = known if is_same else replace(known, crashes=0, counted=None, up_since=None)
    if seen.is_up:
        return _recovering(known, seen, now)
    is_behind = seen.vmi is None and known is not None and known.revision not in ("", seen.revision)
    since = (None if is_behind else shown_since(seen.vm, seen.vmi, now)) or now  # the VM still tells of its last VMI
    period = UnreadyPeriod(seen.uid, since.astimezone(UTC).replace(microsecond=0), seen.revision)
    if known is not None and not has_ended(known, now) and _continues(known, seen):
        period = replace(known, revision=known.revision or seen.revision, up_since=None, silent_since=None)
        if known.up_since is not None and seen.has_ended_since(known.up_since):
            period = replace(period, crashes=known.crashes + 1, counted=known.up_since)
    if ended := seen.new_end(period):
        period = replace(period, crashes=period.crashes + 1, counted=ended)
    return _with_silence(period, seen, known.silent_since if known is not None else None)


def _noted(seen: Observation, now: datetime) -> UnreadyPeriod | None:
    note = seen.note
    return UnreadyPeriod(*astuple(replace(note, since=min(note.since, now)))) if note is not None else None


def _recovering(known: UnreadyPeriod | None, seen: Observation, now: datetime) -> UnreadyPeriod | None:
    if known is None:
        return None
    up_since = known.up_since or min((seen.vmi and vmis.ready_since(seen.vmi)) or now, now)
    period = replace(known, up_since=up_since, silent_since=None)
    return None if has_ended(period, now) and seen.note is None else period


def _continues(known: UnreadyPeriod, seen: Observation) -> bool:
    """Return True if the VM has not been ready since the known period began.

    Another template begins another period, as soon as a VMI with this template exists. So does a restart of a ready VM.
    A VM may have been ready before it got its present VMI, unless it is known to crash, to fail to start, or to be on a
    silent node, or has a predecessor.
    """
    waits_to_start = seen.vmi is None and vms.start_failures_of(seen.vm)  # after a failed start
    if known.revision not in ("", seen.revision) and not waits_to_start:
        return False
    if known.up_since is not None:
        return not seen.is_stopping
    created = with_timezone(seen.vm.metadata.creation_timestamp)
    of_vmi = with_timezone(seen.vmi.metadata.creation_timestamp) if seen.vmi is not None else None
    is_certain = known.crashes > 0 or known.silent_since is not None or vms.start_failures_of(seen.vm)
    has_predecessor = created is not None and known.since < created
    return bool(is_certain or has_predecessor or of_vmi is None or of_vmi - known.since <= STEADY)


def _with_silence(period: UnreadyPeriod, seen: Observation, known: datetime | None) -> UnreadyPeriod:
    if seen.vmi is None:
        return period
    silent = vmis.unready_since(seen.vmi) if vmis.is_out_of_reach(seen.vmi) else None
    return replace(period, silent_since=known if vmis.has_terminating_pod(seen.vmi) else silent)
