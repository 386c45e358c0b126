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
from datetime import UTC, datetime

from msgspec import Struct

from controller.kubevirt.annotations import UNREADY
from controller.kubevirt.vms import is_deleting
from controller.pool.members.machine import Machine
from controller.pool.members.notes import MAX_ENTRIES, note_patch
from controller.pool.members.revisions import Revisions
from controller.pool.members.snapshot import Snapshot
from controller.pool.members.unready_periods import NOTE_AFTER, STEADY, UnreadyNote, UnreadyPeriod, read_notes
from controller.pool.rollout.steps import is_updated
from controller.pool.spec.intent import Intent
from controller.pool.spec.policies import Strategy
from controller.replicas.unready_setting import replace_unready_after
from controller.runtime.actions import Plan, Stage
from informers.meta import annotations_of


def plan_unready_note(snapshot: Snapshot, intent: Intent, revisions: Revisions) -> Plan:
    """Plan a patch of the annotation with the unready periods.

    A patch is needed if the annotation lacks an entry or has too many stale entries.
    """
    meta = snapshot.owner.metadata
    notes = read_notes(meta, snapshot.now)
    if UNREADY not in annotations_of(meta) and not snapshot.members.some(lambda each: each.downtime is not None):
        return Plan()
    periods = _read_periods(snapshot, notes) if _has_reader(snapshot, intent, revisions) else _Periods()
    current = periods.by_ordinal
    noted = {ordinal for ordinal, note in notes.items() if ordinal in current and _note_of(current[ordinal]) == note}
    old_enough = [
        ordinal for ordinal, period in current.items() if ordinal in noted or _is_old_enough(period, snapshot.now)
    ]
    listed = sorted(old_enough, key=lambda ordinal: (current[ordinal].since, ordinal))[:MAX_ENTRIES]
    missing = [ordinal for ordinal in listed if ordinal not in noted]
    is_short = any(snapshot.now - current[ordinal].since >= NOTE_AFTER for ordinal in missing)
    is_stale = UNREADY in annotations_of(meta) and 2 * len(noted) <= len(notes)
    if is_short or is_stale:
        entries = {ordinal: _note_of(current[ordinal]) for ordinal in listed}
        patch = note_patch(snapshot.pools, meta, UNREADY, entries, "notes since when virtual machines are not ready")
        return Plan(stages=(Stage((patch,), essential=False),))
    unnoted = [*periods.young, *(current[ordinal] for ordinal in current.keys() - noted)]
    return _wake(snapshot.now, unnoted, [current[ordinal] for ordinal in noted])


def _has_reader(snapshot: Snapshot, intent: Intent, revisions: Revisions) -> bool:
    """Return True if a later plan can depend on the annotation with the unready periods."""
    if intent.healing is not None or replace_unready_after(snapshot.owner.metadata) is not None:
        return True
    rolls_out = intent.update.strategy is Strategy.PROACTIVE
    return rolls_out and snapshot.members.some(lambda each: not is_updated(revisions, each))


class _Periods(Struct, frozen=True):
    """The unready periods that have not ended.

    `by_ordinal` has the periods that may be in the annotation. `young` has one period of each group of other VMs.
    """

    by_ordinal: Mapping[int, UnreadyPeriod] = {}
    young: tuple[UnreadyPeriod, ...] = ()


def _read_periods(snapshot: Snapshot, notes: Mapping[int, UnreadyNote]) -> _Periods:
    """Return the unready periods of the members.

    A terminating VM needs no entry, because its successor has another UID. A restarted controller would remove the
    entry.
    """
    by_ordinal, young = {}, []
    for group in snapshot.members.groups:
        period = _present_period(group[0], snapshot.now)
        if period is None:
            continue
        if not notes and not _is_old_enough(period, snapshot.now):
            young.append(period)
            continue
        for each in group:
            period, ordinal = _present_period(each, snapshot.now), snapshot.ordinal_of(each)
            if period is not None and ordinal is not None:
                by_ordinal[ordinal] = period
    return _Periods(by_ordinal, tuple(young))


def _present_period(machine: Machine, now: datetime) -> UnreadyPeriod | None:
    period = machine.downtime
    return None if period is None or period.has_ended(now) or is_deleting(machine.vm) else period


def _is_old_enough(period: UnreadyPeriod, now: datetime) -> bool:
    """Return True if the period gets an entry when the annotation is written."""
    return period.ready_at is None and now - period.since >= NOTE_AFTER / 2


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
