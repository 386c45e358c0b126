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

    The delay doubles each time as many members as wanted are lost.
    """
    doublings: int = 2 ** min(max(lost, 0) // max(wanted, 1), 10)
    return min(FIRST_DELAY * doublings, LONGEST_DELAY)


def is_young(meta: ObjectMeta, now: datetime, delay: timedelta) -> bool:
    """Return True if the member is younger than the delay. A wrong clock makes no member young for longer."""
    created = with_timezone(meta.creation_timestamp)
    return created is not None and -delay < now - created < delay


def wanted_beside(held: int, wanted: int, others: int) -> int:
    """Return the wanted number of the other members, if `held` members are not released yet.

    The held members cause no deletion of the `others`.
    """
    return max(wanted - held, min(wanted, others))


def plan_held(owner: ObjectMeta, held: Iterable[KubeObject]) -> Plan:
    """Return a plan that looks again at the members in `held`. Each generation of the owner is reported once."""
    names = sorted(each.metadata.name for each in held)
    if not names:
        return Plan()
    message = f"the labels of {names[0]} do not match soon after its creation; a webhook may have changed them"
    notice = Notice(reason=RELEASE_HELD, message=message, once=f"release-held {owner.generation}")
    return Plan(held=f"{len(names)} releases wait", notices=(notice,), requeue_after_s=FIRST_DELAY.total_seconds())
