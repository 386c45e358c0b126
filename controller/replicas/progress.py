"""The time of the next reconciliation, and the progress deadline of a rollout (R14, P14).

If the new VMs of a rollout are not ready, the controller checks the rollout again at the deadline. If a new VM is still
not ready at the deadline, a notice tells the user.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from controller.runtime.actions import Notice, Plan


def wake_at(times: Iterable[datetime], now: datetime) -> Plan:
    first = min(times, default=None)
    return Plan(requeue_after_s=(first - now).total_seconds() if first is not None else None)


def watch_progress(
    progress: Plan, stuck: Sequence[tuple[datetime, str]], deadline: timedelta, *, now: datetime, template: str
) -> Plan:
    """Return the plan, with a notice if a VM that blocks the rollout has exceeded the deadline.

    If no VM has reached the deadline yet, the returned plan asks for a new reconciliation at the deadline. `stuck` has
    one entry for each VM that blocks the rollout, for example because it has the new template and is not ready. Each
    entry has the time at which the VM became unready, and the VM's name.
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
            f"{len(stuck)} virtual machines block the rollout because they are not ready, {name} for longer than "
            f"{int(deadline.total_seconds())} seconds; no more are replaced until they are"
        ),
        once=f"stalled {template}",
    )
    return replace(progress, notices=(*progress.notices, stalled))
