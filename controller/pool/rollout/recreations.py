"""VMs that an update has deleted, and whose successor does not exist yet (P20).

Such a VM counts as unavailable. The caches cannot show it, and a restarted controller does not remember it. So the
controller writes the ordinals to the pool's annotation `vmherd.dev/recreated` before it deletes the VMs. Healing writes
its own records.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from controller.kubevirt.annotations import HEALED, RECREATED
from controller.pool.members.machine import Machine, Machines
from controller.pool.members.notes import MAX_ENTRIES, Record, note_patch, read_note
from controller.pool.members.snapshot import Snapshot
from controller.runtime.actions import Stage


class Recreation(Struct, frozen=True, array_like=True):
    """The UID of the VM that an update has deleted."""

    uid: str


def count_missing(snapshot: Snapshot, wanted: int, members: Machines) -> int:
    """Return the number of wanted VMs that do not exist because the controller has deleted their predecessors."""
    short = wanted - len(members)
    if short <= 0:
        return 0
    meta = snapshot.owner.metadata
    deleted = read_note(meta, RECREATED, Recreation).keys() | read_note(meta, HEALED, Record).keys()
    present = {snapshot.ordinal_of(each) for each in members} if deleted else set()
    return min(len(deleted - present), short)


def note_recreations(snapshot: Snapshot, machines: Iterable[Machine]) -> tuple[Stage, ...]:
    """Return a stage that notes the VMs before they are deleted. Notes of ordinals with a new VM are
    removed.
    """
    meta = snapshot.owner.metadata
    noted = read_note(meta, RECREATED, Recreation)
    present = {snapshot.ordinal_of(each): each.metadata.uid for each in snapshot.members}
    entries = {ordinal: each for ordinal, each in noted.items() if present.get(ordinal, each.uid) == each.uid}
    ordinals = ((snapshot.ordinal_of(each), each.metadata.uid) for each in machines)
    entries |= {ordinal: Recreation(uid) for ordinal, uid in ordinals if ordinal is not None}
    newest = {ordinal: entries[ordinal] for ordinal in list(entries)[-MAX_ENTRIES:]}
    if newest == noted:
        return ()
    return (Stage((note_patch(snapshot.pools, meta, RECREATED, newest, "notes the VMs that it recreates"),)),)
