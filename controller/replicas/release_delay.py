"""The fixed delay between the creation of a member and its release because of its labels (R2, P2).

A webhook may change the labels of each new VM or VMI. Without the delay, the owner would release each of them at once
and create another one, without end. With the delay, the owner creates at most as many members as it wants in each
`RELEASE_DELAY`.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, TypeVar

from controller.apimachinery.conditions import with_timezone
from controller.runtime.actions import Notice, Plan
from controller.runtime.members.groups import Member
from controller.runtime.waits import Wait
from informers.meta import ObjectMeta

T = TypeVar("T", bound=Member)

RELEASE_HELD: Final = "ReleaseHeld"
RELEASE_DELAY: Final = timedelta(seconds=30)
"""The age at which a member whose labels do not match is released."""


def split_by_age(members: Iterable[T], now: datetime) -> tuple[tuple[T, ...], tuple[T, ...]]:
    """Return the members that may be released now, and the members whose release waits. Both are sorted by name."""
    in_order = sorted(members, key=lambda each: each.metadata.name)
    held = tuple(each for each in in_order if is_young(each.metadata, now))
    return tuple(each for each in in_order if not is_young(each.metadata, now)), held


def is_young(meta: ObjectMeta, now: datetime) -> bool:
    """If the creation time is more than `RELEASE_DELAY` in the future, a clock is wrong, and the result is False."""
    created = with_timezone(meta.creation_timestamp)
    return created is not None and abs(now - created) < RELEASE_DELAY


def plan_held(owner: ObjectMeta, held: Iterable[Member], now: datetime) -> Plan:
    """Return a plan that requests a reconciliation when the first of the members in `held` may be released.

    The notice is sent once for each generation of the owner.
    """
    held = sorted(held, key=lambda each: each.metadata.name)
    if not held:
        return Plan()
    created = [with_timezone(each.metadata.creation_timestamp) or now for each in held]
    message = (
        f"the labels of {held[0].metadata.name} do not match soon after its creation; a webhook may have changed them"
    )
    return Plan(
        waits=(Wait(text=f"{len(held)} releases wait"),),
        notices=(Notice(reason=RELEASE_HELD, message=message, once=f"release-held {owner.generation}"),),
        requeue_after_s=(min(created) + RELEASE_DELAY - now).total_seconds(),
    )
