"""Busy VMs: a person or a program works in the guest until the time in the annotation `vmherd.dev/busy-until` (P24).

A mark has an end, so a forgotten mark ends by itself. A value that is not a time counts until it is corrected, because
harm is worse than delay (P23 reports it).

A claimed VM is busy too, until its claim ends (P33). A claim without a time has no end.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from controller.apimachinery.conditions import with_timezone
from controller.kubevirt.annotations import BUSY_UNTIL, CLAIMED_BY, CLAIMED_UNTIL
from informers.meta import KubeObject, ObjectMeta, annotations_of

_CLOCK: Final = "([01][0-9]|2[0-3]):[0-5][0-9]"
TIME_PATTERN: Final = (
    rf"[0-9]{{4}}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T{_CLOCK}(:[0-5][0-9](\.[0-9]{{1,9}})?)(Z|[+-]{_CLOCK})"
)
_TIME: Final = re.compile(TIME_PATTERN, re.ASCII)
CLAIMANT_PATTERN: Final = "[!-~]{1,253}"
_CLAIMANT: Final = re.compile(CLAIMANT_PATTERN, re.ASCII)

BEFORE_ALL: Final = datetime.min.replace(tzinfo=UTC)
"""A time at which every mark still counts."""


def is_claimed(meta: ObjectMeta) -> bool:
    """Return True if a user has claimed the VM, also if the claim has ended."""
    return meta.annotations is not None and CLAIMED_BY in meta.annotations


def claim_ends_at(meta: ObjectMeta) -> datetime | None:
    """Return the time at which the claim of a VM ends, or None if it is not claimed, or the claim has no end."""
    return time_of(annotations_of(meta).get(CLAIMED_UNTIL, "")) if is_claimed(meta) else None


def is_claim_of_backup(meta: ObjectMeta) -> bool:
    """Return True if the claim ended before the VM was created: a backup has restored it, maybe with the only data."""
    until, created = claim_ends_at(meta), with_timezone(meta.creation_timestamp)
    return until is not None and created is not None and until < created


def busy_mark(meta: ObjectMeta) -> str | None:
    return meta.annotations.get(BUSY_UNTIL) if meta.annotations is not None else None


def busy_reason(obj: KubeObject, now: datetime) -> str:
    """Return why the mark of a VM or VMI says that it must not be deleted or restarted now, or "" if it is not busy."""
    mark = busy_mark(obj.metadata)
    if mark is None:
        return ""
    until = time_of(mark)
    if until is None:
        return f"it is busy: its {BUSY_UNTIL} is not a time"
    return f"it is busy until {mark}" if now < until else ""


def claim_reason(vm: ObjectMeta, now: datetime) -> str:
    """Return the claim of a VM that has not ended, or "". An annotation on a VMI claims nothing."""
    if not is_claimed(vm):
        return ""
    by, until = annotations_of(vm)[CLAIMED_BY], claim_ends_at(vm)
    reason = f"it is claimed by {by}" if _CLAIMANT.fullmatch(by) else "it is claimed"
    if until is None:
        return reason
    return f"{reason} until {annotations_of(vm)[CLAIMED_UNTIL]}" if now < until else ""


def lasting(reason: str) -> str:
    """Return the part of a reason that stays the same if the time of a mark is extended. It identifies an Event."""
    return reason.partition(" until ")[0]


def ends_of_marks(*objects: KubeObject | None, now: datetime) -> Iterator[datetime]:
    for meta in (obj.metadata for obj in objects if obj is not None):
        ends = (time_of(busy_mark(meta) or ""), claim_ends_at(meta))
        yield from (until for until in ends if until is not None and until > now)


def time_of(text: str) -> datetime | None:
    """Return the time in an annotation in the form of `TIME_PATTERN`, or None. P23 reports the same values."""
    try:
        return with_timezone(datetime.fromisoformat(text)) if _TIME.fullmatch(text) else None
    except ValueError:  # such as February 30
        return None
