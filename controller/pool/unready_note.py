"""The controller stores long unready periods of VMs in the pool's annotation `vmherd.dev/unready` (P15).

An unready period is a time during which a VM is not ready. After a restart, the controller reads the starts of the
periods from the annotation. These rules limit the number of writes:

- A pool has the annotation only while the pool uses autohealing, replaces unready VMs, or rolls out a template.
- Only a VM that has been unready for `NOTE_AFTER` needs an entry. So a VM that starts in a normal way causes no write.
- A write also adds the entries that will be needed in the next 15 seconds. So new entries cause at most one write every
  15 seconds.
- Entries of ended periods are removed when at least half of all entries are stale.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from controller.kubevirt.annotations import UNREADY
from controller.kubevirt.unready_setting import replace_unready_after
from controller.kubevirt.vms import is_deleting
from controller.pool.intent import Intent
from controller.pool.ordinal_notes import MAX_ENTRIES, note_patch
from controller.pool.policies import Strategy
from controller.pool.revisions import Revisions
from controller.pool.snapshot import Snapshot
from controller.pool.steps import is_updated
from controller.pool.unready_periods import STEADY, UnreadyNote, UnreadyPeriod, read_notes
from controller.runtime.plan import Plan, Stage
from informers.meta import annotations_of

NOTE_AFTER: Final = timedelta(seconds=30)
"""The age at which an unready period needs an entry in the annotation."""


def plan_unready_note(snapshot: Snapshot, intent: Intent, revisions: Revisions) -> Plan:
    """Plan a patch of the annotation with the unready periods.

    A patch is needed if the annotation lacks an entry or has too many stale entries.
    """
    meta = snapshot.owner.metadata
    notes = read_notes(meta, snapshot.now)
    if not snapshot.unready and UNREADY not in annotations_of(meta):
        return Plan()
    current = _periods_by_ordinal(snapshot) if _has_reader(snapshot, intent, revisions) else {}
    noted = {ordinal for ordinal, note in notes.items() if ordinal in current and current[ordinal].uid == note.uid}
    old_enough = [
        ordinal
        for ordinal, period in current.items()
        if ordinal in noted or (period.ready_at is None and snapshot.now - period.since >= NOTE_AFTER / 2)
    ]
    listed = sorted(old_enough, key=lambda ordinal: (current[ordinal].since, ordinal))[:MAX_ENTRIES]
    missing = [ordinal for ordinal in listed if ordinal not in noted]
    is_short = any(snapshot.now - current[ordinal].since >= NOTE_AFTER for ordinal in missing)
    is_stale = UNREADY in annotations_of(meta) and 2 * len(noted) <= len(notes)
    if is_short or is_stale:
        entries = {ordinal: _note_of(current[ordinal]) for ordinal in listed}
        patch = note_patch(snapshot.pools, meta, UNREADY, entries, "notes since when virtual machines are not ready")
        return Plan(stages=(Stage((patch,)),))
    return _wake(snapshot.now, [current[ordinal] for ordinal in current.keys() - noted], [current[o] for o in noted])


def _has_reader(snapshot: Snapshot, intent: Intent, revisions: Revisions) -> bool:
    """Return True if a later plan can depend on the annotation with the unready periods."""
    if intent.healing is not None or replace_unready_after(snapshot.owner.metadata).after is not None:
        return True
    rolls_out = intent.update.strategy is Strategy.PROACTIVE
    return rolls_out and snapshot.members.some(lambda vm: not is_updated(snapshot, revisions, vm))


def _periods_by_ordinal(snapshot: Snapshot) -> Mapping[int, UnreadyPeriod]:
    """Return the unready periods that have not ended, by the ordinal of the VM.

    A terminating VM needs no entry, because its successor has another UID. A restarted controller would remove the
    entry.
    """
    found = {}
    for vm in snapshot.restless:
        if is_deleting(vm):
            continue
        period, ordinal = snapshot.unready.get(vm.metadata.name), snapshot.ordinal_of(vm)
        is_present = period is not None and period.uid == vm.metadata.uid and not period.has_ended(snapshot.now)
        if period is not None and is_present and ordinal is not None:
            found[ordinal] = period
    return found


def _note_of(period: UnreadyPeriod) -> UnreadyNote:
    return UnreadyNote(period.uid, period.since.astimezone(UTC).replace(microsecond=0))


def _wake(now: datetime, unnoted: list[UnreadyPeriod], noted: list[UnreadyPeriod]) -> Plan:
    """Return a plan that requests another reconciliation.

    This reconciliation starts when the annotation needs a new entry, or when an entry becomes stale.
    """
    times = [period.since + NOTE_AFTER for period in unnoted if period.ready_at is None]
    times += [period.ready_at + STEADY for period in noted if period.ready_at is not None]
    waits = [(time - now).total_seconds() for time in times if time > now]
    return Plan(requeue_after_s=min(waits, default=None))
