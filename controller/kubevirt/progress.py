"""A rollout that waits for VMs which do not come up: when to look again, and when to tell the user (R14, P14)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.field_error import quoted
from controller.kubevirt.annotations import PROGRESS_DEADLINE, parse_integer
from controller.runtime.plan import Notice, Plan
from informers.meta import ObjectMeta, annotations_of

PROGRESS_DEADLINE_S = 600
INVALID_ANNOTATION = "InvalidAnnotation"


class Deadline(Struct, frozen=True):
    """How long a rollout may wait before the user is told."""

    after: timedelta
    notices: tuple[Notice, ...] = ()


def parse_deadline(owner: ObjectMeta) -> Deadline:
    """The owner's own deadline, or the default where it gives none that can be read."""
    text = annotations_of(owner).get(PROGRESS_DEADLINE, str(PROGRESS_DEADLINE_S))
    seconds = parse_integer(text)
    if seconds is not None and seconds > 0:
        return Deadline(timedelta(seconds=seconds))
    message = (
        f"annotation {PROGRESS_DEADLINE} is {quoted(text)}: it must be a number of seconds, "
        f"so it counts as {PROGRESS_DEADLINE_S}"
    )
    return Deadline(timedelta(seconds=PROGRESS_DEADLINE_S), (invalid_annotation(PROGRESS_DEADLINE, owner, message),))


def invalid_annotation(annotation: str, owner: ObjectMeta, message: str) -> Notice:
    value = annotations_of(owner).get(annotation)
    return Notice(reason=INVALID_ANNOTATION, message=message, once=f"{annotation} {value}")


def watch_progress(
    progress: Plan, stuck: Sequence[tuple[datetime, str]], deadline: timedelta, *, now: datetime, template: str
) -> Plan:
    """Tell the user when the new template keeps the rollout waiting for too long; before that, wake at that moment.

    `stuck` are the VMs of the new template that are not ready: since when, and the name.
    """
    if not stuck:
        return progress
    since, name = min(stuck)
    remaining = deadline - (now - since)
    if remaining > timedelta():
        # A node's clock may be ahead of ours: never sleep for longer than the deadline itself.
        wake_s = min(remaining, deadline).total_seconds()
        return replace(progress, requeue_after_s=min(wake_s, progress.requeue_after_s or wake_s))
    stalled = Notice(
        reason="RolloutStalled",
        message=(
            f"{len(stuck)} virtual machines of the new template are not ready, {name} for longer than "
            f"{int(deadline.total_seconds())} seconds; no more are replaced until they are"
        ),
        once=f"stalled {template}",
    )
    return replace(progress, notices=(*progress.notices, stalled))
