"""Busy VMs: a person or a program works in the guest until the time in the annotation `vmherd.dev/busy-until` (P24).

A mark has an end, so a forgotten mark ends by itself. A value that is not a time counts until it is corrected, because
harm is worse than delay (P23 reports it).
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from controller.apimachinery.conditions import with_timezone
from controller.kubevirt.annotations import BUSY_UNTIL
from informers.meta import KubeObject, ObjectMeta

_CLOCK: Final = "([01][0-9]|2[0-3]):[0-5][0-9]"
TIME_PATTERN: Final = (
    rf"[0-9]{{4}}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T{_CLOCK}(:[0-5][0-9](\.[0-9]{{1,9}})?)(Z|[+-]{_CLOCK})"
)
_TIME: Final = re.compile(TIME_PATTERN, re.ASCII)

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
    """Return the time in an annotation, or None if the text is not a time in the form of `TIME_PATTERN`. The report
    about wrong values (P23) asks this function too.
    """
    try:
        return with_timezone(datetime.fromisoformat(text)) if _TIME.fullmatch(text) else None
    except ValueError:  # such as February 30
        return None
