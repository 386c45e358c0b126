"""Delays the release of members whose labels do not match soon after their creation (R2, P2).

A webhook may change the labels of each new VM or VMI. The owner would then release each of them at once and create
another one, without end. So a young member stays a member, and its owner does not replace it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from controller.apimachinery.conditions import with_timezone
from controller.runtime.plan import Notice, Plan
from informers.meta import KubeObject, ObjectMeta

RELEASE_HELD: Final = "ReleaseHeld"
FIRST_DELAY: Final = timedelta(seconds=5)
LONGEST_DELAY: Final = timedelta(minutes=5)


def release_delay(lost: int, wanted: int) -> timedelta:
    """Return the age at which a member may be released. `lost` is the number of earlier members that were released.

    Each time the number of released members grows by `wanted`, the delay doubles.
    """
    doublings: int = 2 ** min(max(lost, 0) // max(wanted, 1), 10)
    return min(FIRST_DELAY * doublings, LONGEST_DELAY)


def is_young(meta: ObjectMeta, now: datetime, delay: timedelta) -> bool:
    """Return True if the member is younger than `delay`.

    If the creation time is more than `delay` in the future, a clock is wrong, and the result is False.
    """
    created = with_timezone(meta.creation_timestamp)
    return created is not None and -delay < now - created < delay


def wanted_beside(held: int, wanted: int, others: int) -> int:
    """Return the number of members that the owner wants in addition to the `held` members.

    The release of a held member waits. A held member still counts, so the owner does not replace the member. But the
    owner deletes none of the `others` because of held members.
    """
    return max(wanted - held, min(wanted, others))


def plan_held(owner: ObjectMeta, held: Iterable[KubeObject]) -> Plan:
    """Return a plan that requests another reconciliation, because the release of the members in `held` waits.

    The notice is sent once for each generation of the owner.
    """
    names = sorted(each.metadata.name for each in held)
    if not names:
        return Plan()
    message = f"the labels of {names[0]} do not match soon after its creation; a webhook may have changed them"
    notice = Notice(reason=RELEASE_HELD, message=message, once=f"release-held {owner.generation}")
    return Plan(held=f"{len(names)} releases wait", notices=(notice,), requeue_after_s=FIRST_DELAY.total_seconds())
