"""Replacing VMs that do not come up (P15), with brakes: none of it may do more harm than the failure.

A failing VM is deleted in the foreground, so that its disks go with it, and the same ordinal is made anew. What was
healed lately is written to the pool before the delete, in the annotation `vmherd.dev/healed`: for each ordinal the UID
that goes, how often in a row, and when. It has to outlive the VM and a crash, and the pool is the one object that does
both. An ordinal's entry is dropped, when another is written, once nothing was wrong with it for long enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from controller.kubevirt.amounts import Amount, parse_amount
from controller.kubevirt.machine_types import VirtualMachine
from controller.kubevirt.machines import (
    BROKEN_STATES,
    is_deleting,
    is_meant_to_run,
    is_ready,
    printable_status_of,
    start_failures_of,
    unready_since,
)
from controller.kubevirt.markers import HEALED, MAX_UNHEALTHY, quoted
from controller.kubevirt.progress import invalid_annotation
from controller.planning import HEALING, Notice, Patch, PatchType, Plan, Stage
from controller.pool.intent import Intent
from controller.pool.policies import Healing
from controller.pool.scale import delete_of
from controller.pool.snapshot import Snapshot
from informers.meta import annotations_of

FIRST_PAUSE: Final = timedelta(seconds=10)
LONGEST_PAUSE: Final = timedelta(minutes=5)
FORGOTTEN_AFTER: Final = timedelta(minutes=30)
COMING_UP: Final = timedelta(minutes=5)
"""A healed VM that is not ready after this long, and not failing either, holds nobody up any longer."""

MAX_UNHEALTHY_DEFAULT: Final = Amount(50, percent=True)


class Record(Struct, frozen=True, array_like=True):
    """The last healing of an ordinal: the VM that went, how often in a row, and when."""

    uid: str
    count: int
    at: datetime


class Patient(Struct, frozen=True):
    """A member that fails, why, and from when on it may be replaced."""

    vm: VirtualMachine
    ordinal: int
    why: str
    due: datetime


def plan_healing(snapshot: Snapshot, intent: Intent, members: tuple[VirtualMachine, ...]) -> Plan:
    """Delete members that fail, as many as the brakes allow; and look again when the next one is due."""
    if intent.healing is None:
        return Plan()
    records = read_records(snapshot, intent.healing)
    patients = _patients(snapshot, intent.healing, members, records)
    if not patients:
        return Plan()
    recovering = count_recovering(snapshot, intent, members, records, {each.vm.metadata.uid for each in patients})
    limit, notices = _most_unhealthy(snapshot, len(members))
    if len(patients) + recovering > limit:
        return Plan(held="healing holds", notices=(*notices, _held(snapshot, len(patients) + recovering, limit)))
    ripe = [each for each in patients if each.due <= snapshot.now]
    slots = max(min(intent.most_unavailable - recovering, snapshot.limits.burst), 0)
    chosen = sorted(ripe, key=lambda each: (each.due, each.ordinal))[:slots]
    waits = [(each.due - snapshot.now).total_seconds() for each in patients if each.due > snapshot.now]
    stages = _stages(snapshot, intent.healing, chosen, records) if chosen else ()
    held = f"healing: {len(ripe) - len(chosen)} wait for others to come up" if len(chosen) < len(ripe) else ""
    return Plan(stages=stages, notices=notices, held=held, requeue_after_s=min(waits, default=None))


def read_records(snapshot: Snapshot, healing: Healing) -> Mapping[int, Record]:
    """What was healed lately, by ordinal. Whatever cannot be read was never written."""
    text = annotations_of(snapshot.owner.metadata).get(HEALED, "")
    try:
        records = msgspec.json.decode(text, type=dict[int, Record]) if text else {}
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return {}
    kept_for = FORGOTTEN_AFTER + 2 * healing.min_failing
    return {
        ordinal: record
        for ordinal, record in records.items()
        if record.at.tzinfo is not None and timedelta() <= snapshot.now - record.at < kept_for and record.count > 0
    }


def count_recovering(
    snapshot: Snapshot,
    intent: Intent,
    members: tuple[VirtualMachine, ...],
    records: Mapping[int, Record],
    failing: set[str],
) -> int:
    """How many that were healed are on their way down or up again."""
    by_ordinal = {snapshot.ordinal_of(vm): vm for vm in members}
    recovering, absent = 0, 0
    for ordinal, record in records.items():
        vm = by_ordinal.get(ordinal)
        if vm is None:
            absent += 1
        elif vm.metadata.uid == record.uid:
            recovering += is_deleting(vm)
        elif vm.metadata.uid not in failing and not is_ready(vm) and is_meant_to_run(vm):
            recovering += snapshot.now - record.at < COMING_UP
    return recovering + min(absent, max(intent.wanted - len(members), 0))


def _patients(
    snapshot: Snapshot, healing: Healing, members: tuple[VirtualMachine, ...], records: Mapping[int, Record]
) -> list[Patient]:
    patients = []
    for vm in members:
        ordinal = snapshot.ordinal_of(vm)
        if ordinal is None or is_deleting(vm) or is_ready(vm) or not is_meant_to_run(vm):
            continue
        failing = _failing(vm, healing)
        if failing is not None:
            why, since = failing
            due = max(since or snapshot.now, _rested(vm, records.get(ordinal)) or snapshot.now)
            patients.append(Patient(vm, ordinal, why, due))
    return patients


def _failing(vm: VirtualMachine, healing: Healing) -> tuple[str, datetime | None] | None:
    """Why this VM counts as failing, and from when on it may be replaced (None: at once); None where it is well."""
    failures = start_failures_of(vm)
    if failures >= healing.threshold:
        return f"it failed to start {failures} times in a row", None
    state, since = printable_status_of(vm), unready_since(vm)
    if state in BROKEN_STATES and since is not None:
        return f"{state} for longer than {int(healing.min_failing.total_seconds())} s", since + healing.min_failing
    return None


def _rested(vm: VirtualMachine, record: Record | None) -> datetime | None:
    """When an ordinal that was healed before may be healed again. The same VM means that its delete never happened."""
    if record is None or record.uid == vm.metadata.uid:
        return None
    return record.at + pause_after(record.count)


def pause_after(count: int) -> timedelta:
    """10 s after the first healing, then twice as long each time, up to 5 minutes."""
    doublings: int = 2 ** min(count - 1, 16)
    return min(FIRST_PAUSE * doublings, LONGEST_PAUSE)


def _most_unhealthy(snapshot: Snapshot, members: int) -> tuple[int, tuple[Notice, ...]]:
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


def _held(snapshot: Snapshot, failing: int, limit: int) -> Notice:
    return Notice(
        reason="HealingHeld",
        message=(
            f"{failing} virtual machines fail together, more than the {limit} that replacing helps with; "
            "none is replaced until fewer do"
        ),
        once=f"healing held {snapshot.owner.metadata.generation}",
    )


def _stages(
    snapshot: Snapshot, healing: Healing, chosen: list[Patient], records: Mapping[int, Record]
) -> tuple[Stage, ...]:
    """First the record, then the deletes: a crash between them heals the same VMs again, and counts them once."""
    now = snapshot.now.astimezone(UTC).replace(microsecond=0)
    updated = dict(records)
    for each in chosen:
        before = records.get(each.ordinal)
        if before is None or before.uid != each.vm.metadata.uid:
            updated[each.ordinal] = Record(each.vm.metadata.uid, before.count + 1 if before else 1, now)
    deletes = Stage(tuple(delete_of(each.vm, f"{HEALING}{each.why}", foreground=True) for each in chosen))
    if updated == records:
        return (deletes,)
    meta = snapshot.owner.metadata
    text = msgspec.json.encode(dict(sorted(updated.items()))).decode()
    body = msgspec.json.encode({"metadata": {"uid": meta.uid, "annotations": {HEALED: text}}})
    record = Patch(resource=snapshot.pools, key=meta.key, body=body, type=PatchType.MERGE, why="what is being healed")
    return (Stage((record,)), deletes)
