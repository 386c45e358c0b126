"""Delays the release of members whose labels do not match soon after their creation (R2, P2).

A webhook may change the labels of each new VM or VMI. The owner would then release each of them at once and create
another one, without end. So a member stays a member for `RELEASE_DELAY` after its creation, and its owner does not
replace it. Such a webhook causes at most as many creates as the owner wants members, once in each `RELEASE_DELAY`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from controller.apimachinery.conditions import with_timezone
from controller.runtime.actions import Notice, Plan
from controller.runtime.members.groups import Member
from informers.meta import ObjectMeta

RELEASE_HELD: Final = "ReleaseHeld"
RELEASE_DELAY: Final = timedelta(seconds=30)
"""The age at which a member whose labels do not match may be released."""


def is_young(meta: ObjectMeta, now: datetime) -> bool:
    """Return True if the member is younger than `RELEASE_DELAY`.

    If the creation time is more than `RELEASE_DELAY` in the future, a clock is wrong, and the result is False.
    """
    created = with_timezone(meta.creation_timestamp)
    return created is not None and -RELEASE_DELAY < now - created < RELEASE_DELAY


def wanted_beside(held: int, wanted: int, others: int) -> int:
    """Return the number of members that the owner wants in addition to the `held` members.

    The release of a held member waits. A held member still counts, so the owner does not replace the member. But the
    owner deletes none of the `others` because of held members.
    """
    return max(wanted - held, min(wanted, others))


def plan_held(owner: ObjectMeta, held: Iterable[Member], now: datetime) -> Plan:
    """Return a plan that requests a reconciliation when the first of the members in `held` may be released.

    The notice is sent once for each generation of the owner.
    """
    held = tuple(held)
    if not held:
        return Plan()
    names = sorted(each.metadata.name for each in held)
    created = min(filter(None, (with_timezone(each.metadata.creation_timestamp) for each in held)), default=now)
    wait_s = (created + RELEASE_DELAY - now).total_seconds()
    message = f"the labels of {names[0]} do not match soon after its creation; a webhook may have changed them"
    notice = Notice(reason=RELEASE_HELD, message=message, once=f"release-held {owner.generation}")
    return Plan(held=f"{len(names)} releases wait", notices=(notice,), requeue_after_s=wait_s)
