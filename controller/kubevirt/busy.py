"""Busy VMs: a person or a program works in the guest until the time in the annotation `vmherd.dev/busy-until` (P24).

A mark has an end, so a forgotten mark ends by itself. A value that is not a time counts until it is corrected, because
harm is worse than delay (P23 reports it).
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from controller.apimachinery.conditions import with_timezone
from controller.kubevirt.annotations import BUSY_UNTIL
from informers.meta import KubeObject, ObjectMeta

BEFORE_ALL: Final = datetime.min.replace(tzinfo=UTC)
"""A time at which every mark still counts."""


def busy_mark(meta: ObjectMeta) -> str | None:
    return meta.annotations.get(BUSY_UNTIL) if meta.annotations is not None else None


def busy_reason(obj: KubeObject, now: datetime) -> str:
    """Return the reason why the VM or VMI must not be deleted or restarted now, or "" if it is not busy."""
    mark = busy_mark(obj.metadata)
    if mark is None:
        return ""
    until = time_of(mark)
    if until is None:
        return f"it is busy: its {BUSY_UNTIL} is not a time"
    return f"it is busy until {mark}" if now < until else ""


def lasting(reason: str) -> str:
    """Return the part of a reason that stays the same if the time of a mark is extended. It identifies an Event."""
    return reason.partition(" until ")[0]


def ends_of_marks(*objects: KubeObject | None, now: datetime) -> Iterator[datetime]:
    for obj in objects:
        mark = busy_mark(obj.metadata) if obj is not None else None
        until = time_of(mark) if mark is not None else None
        if until is not None and until > now:
            yield until


def time_of(text: str) -> datetime | None:
    """Return the time in an annotation, or None if the text is not a time with a time zone."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return with_timezone(time) if time.tzinfo is not None else None
