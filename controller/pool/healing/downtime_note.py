"""The controller stores long unready periods of VMs in the pool's annotation `vmherd.dev/unready` (P15).

An unready period is a time during which a VM is not ready. After a restart, the controller reads the starts of the
periods from the annotation. These rules limit the number of writes:

- A pool has the annotation only while the pool uses autohealing, replaces unready VMs, or rolls out a template.
- Only a VM that has been unready for `NOTE_AFTER` needs an entry. So a VM that starts in a normal way causes no write.
- A write also adds the entries that will be needed in the next 15 seconds. So new entries cause at most one write every
  15 seconds.
- Entries of ended periods are removed when at least half of all entries are stale.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice

from msgspec import Struct

from controller.kubevirt.annotations import UNREADY
from controller.kubevirt.vms import is_deleting
from controller.pool.members.notes import MAX_ENTRIES, encode_note
from controller.pool.members.situation import Situation
from controller.pool.members.snapshot import Snapshot
from controller.pool.members.unready_periods import (
    NOTE_AFTER,
    STEADY,
    Down,
    Recovering,
    UnreadyNote,
    down_of,
    has_ended,
    read_notes,
)
from controller.pool.rollout.steps import is_updated
from controller.pool.spec.policies import Strategy
from controller.replicas.notes import plan_note, wake_at
from controller.runtime.actions import Plan
from informers.meta import annotations_of


def plan_unready_note(situation: Situation) -> Plan:
    """Plan a patch of the annotation with the unready periods.

    A patch is needed if the annotation lacks an entry or has too many stale entries.
    """
    snapshot, pool, now = situation.snapshot, situation.pool, situation.now
    has_note = UNREADY in annotations_of(pool)
    if not has_note and not snapshot.members.some(lambda each: each.downtime is not None):
        return Plan()
    notes = read_notes(pool, now)
    entries = list(_entries(snapshot, notes)) if _has_reader(situation) else []
    in_order = sorted(entries, key=lambda each: (down_of(each.period).since, each.ordinal))
    listed = [each for each in in_order if each.is_noted or _is_old_enough(each.period, now)][:MAX_ENTRIES]
    is_short = any(not each.is_noted and now - down_of(each.period).since >= NOTE_AFTER for each in listed)
    is_stale = has_note and 2 * sum(each.is_noted for each in entries) <= len(notes)
    if is_short or is_stale:
        text = encode_note({each.ordinal: each.note for each in listed})
        return plan_note(snapshot.pools, pool, {UNREADY: text}, "notes since when VMs are not ready")
    return wake_at((time for each in entries if (time := each.changes_at) is not None and time > now), now)


def _has_reader(situation: Situation) -> bool:
    """Return True if a later plan can depend on the annotation with the unready periods."""
    intent, members = situation.intent, situation.snapshot.members
    rolls_out = intent.update.strategy is Strategy.PROACTIVE
    return intent.heals or (rolls_out and members.some(lambda each: not is_updated(situation.revisions, each)))


class _Entry(Struct, frozen=True):
    """The unready period of a VM and its entry. `is_noted` is true if the annotation has the entry."""

    ordinal: int
    period: Down | Recovering
    note: UnreadyNote
    is_noted: bool

    @property
    def changes_at(self) -> datetime | None:
        """The time at which the annotation needs this entry, or at which the entry becomes stale."""
        match self.period:
            case Down(since=since):
                return None if self.is_noted else since + NOTE_AFTER
            case Recovering(at=at):
                return at + STEADY if self.is_noted else None


def _entries(snapshot: Snapshot, notes: Mapping[int, UnreadyNote]) -> Iterator[_Entry]:
    """Yield the entries of the members whose unready period has not ended.

    A terminating VM needs no entry, because its successor has another UID. A restarted controller would remove the
    entry. If the annotation has no entries, one member of each group of young periods is enough.
    """
    for group in snapshot.members.groups:
        shared = group.traits.downtime
        if shared is None or has_ended(shared, snapshot.now) or is_deleting(group.traits.vm):
            continue
        is_young = not notes and not _is_old_enough(shared, snapshot.now)
        for each in islice(group, 1 if is_young else None):
            ordinal, period = snapshot.ordinal_of(each), each.downtime
            if ordinal is not None and period is not None:
                down = down_of(period)
                note = UnreadyNote(down.uid, down.since.astimezone(UTC).replace(microsecond=0))
                yield _Entry(ordinal, period, note, notes.get(ordinal) == note)


def _is_old_enough(period: Down | Recovering, now: datetime) -> bool:
    """Return True if the annotation gets the entry of this period at its next write."""
    return isinstance(period, Down) and now - period.since >= NOTE_AFTER / 2
