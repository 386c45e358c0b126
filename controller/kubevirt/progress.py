"""The progress deadline of a rollout (R14, P14).

If the new VMs of a rollout are not ready, the controller checks the rollout again at the deadline. If a new VM is still
not ready at the deadline, a notice tells the user.
"""

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
"""The default of the progress deadline, in seconds."""

INVALID_ANNOTATION = "InvalidAnnotation"


class Deadline(Struct, frozen=True):
    """The time that a rollout may wait for a VM to become ready. After this time a notice tells the user.

    `notices` contains a warning if the annotation has an invalid value.
    """

    after: timedelta
    notices: tuple[Notice, ...] = ()


def parse_deadline(owner: ObjectMeta) -> Deadline:
    """Return the deadline from the annotation, or the default if the annotation is absent or invalid."""
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
    """Return the plan, with a notice if a VM of the new template has exceeded the deadline.

    If no VM has reached the deadline yet, the returned plan asks for a new reconciliation at the deadline. `stuck` has
    one entry for each VM of the new template that is not ready. Each entry has the time at which the VM became unready,
    and the VM's name.
    """
    if not stuck:
        return progress
    since, name = min(stuck)
    remaining = deadline - (now - since)
    if remaining > timedelta():
        # The clock of a node may be ahead of our clock. So the wait is never longer than the deadline.
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
