"""The pool's annotation `vmherd.dev/unready` has the unready periods that the objects do not show (P15).

These rules limit the number of writes:

- A VM needs an entry if its guest crashes, if its node is silent, or if it has been unready for `NOTE_AFTER` and its
  objects show a later time. So a VM that starts in a normal way causes no write.
- A write also adds the other VMs that have been unready for half of this time.
- The number of crashes in an entry is written again if the guest has ended `COUNT_AFTER` later than the entry says.
- An entry is removed if its VM has been ready for `STEADY` or is stopped, or if the pool wants no VM in its place.
"""

from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from msgspec.structs import replace

from controller.kubevirt.annotations import UNREADY
from controller.pool.members.machine import Machine
from controller.pool.members.notes import MAX_ENTRIES, encode_note
from controller.pool.members.situation import Situation
from controller.pool.members.unready_periods import STEADY, UnreadyNote, has_ended, read_notes, shown_since
from controller.replicas.notes import wake_at
from controller.runtime.actions import Plan
from informers.meta import annotations_of

NOTE_AFTER: Final = timedelta(seconds=30)
COUNT_AFTER: Final = timedelta(minutes=1)


def plan_unready_note(situation: Situation) -> Plan:
    """Plan a patch of the annotation if it lacks an entry or has one too many."""
    snapshot, now, has_note = situation.snapshot, situation.now, UNREADY in annotations_of(situation.pool)
    unready = snapshot.members.where(lambda each: each.downtime is not None and not has_ended(each.downtime, now))
    if not unready and not has_note:
        return Plan()
    notes, times = read_notes(situation.pool, now), list[datetime]()
    found: dict[int, tuple[bool, UnreadyNote]] = {}
    for group in unready.groups:
        at = _needed_at(situation, group.traits)
        is_needed = at is not None and at <= now
        is_old = is_needed or _is_old(group.traits, now)
        for each in islice(group, None if is_old or notes else 1):
            ordinal, period = snapshot.ordinal_of(each), each.downtime
            if ordinal is None or period is None:
                continue
            is_noted = _is_noted(notes.get(ordinal), period.note)
            if is_noted or is_old:
                found[ordinal] = not is_needed, period.note
            if is_noted and period.up_since is not None:
                times.append(period.up_since + STEADY)
            elif at is not None and not is_needed and not is_noted:
                times.append(at)
    found |= {each: (True, notes[each]) for each in _missing(situation, notes.keys() - found.keys())}
    in_order = sorted(found.items(), key=lambda each: (each[1][0], each[1][1].since, each[0]))[: MAX_ENTRIES // 2]
    is_short = any(not _is_noted(notes.get(ordinal), note) for ordinal, (is_extra, note) in in_order if not is_extra)
    if is_short or notes.keys() - found.keys() or (has_note and not notes):
        text = encode_note({ordinal: note for ordinal, (_, note) in in_order})
        return snapshot.note({UNREADY: text}, "notes since when VMs are not ready")
    return wake_at(times, now)


def _is_noted(noted: UnreadyNote | None, note: UnreadyNote) -> bool:
    """Return True if the entry says the same, or has only a number of crashes that is less than `COUNT_AFTER` old."""
    if noted is None or not (noted.counted and note.counted) or note.counted - noted.counted >= COUNT_AFTER:
        return noted == note
    return replace(noted, crashes=note.crashes, counted=note.counted) == note


def _needed_at(situation: Situation, machine: Machine) -> datetime | None:
    """Return the time from which the annotation needs an entry of the VM, or None if it needs none."""
    period, now = machine.downtime, situation.now
    if period is None or period.crashes or period.silent_since:
        return now
    if period.up_since is not None:
        return None
    shown = shown_since(machine.vm, machine.vmi, now)
    return period.since + NOTE_AFTER if shown is None or shown > period.since + timedelta(seconds=1) else None


def _is_old(machine: Machine, now: datetime) -> bool:
    period = machine.downtime
    return period is not None and period.up_since is None and now - period.since >= NOTE_AFTER / 2


def _missing(situation: Situation, ordinals: set[int]) -> set[int]:
    """Return those of the ordinals whose VM will be created again."""
    members = situation.snapshot.members
    if not ordinals or len(members) >= situation.target.wanted:
        return set()
    return ordinals.difference(situation.snapshot.ordinals_of(members))
