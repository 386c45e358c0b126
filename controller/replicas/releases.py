"""The release of members because of their labels (R2, P2), with a growing delay and a bound.

A webhook or another controller may change the labels of each new VM or VMI. Without a delay, the owner would release
each of them at once and create another one, without end. So a young member is not released, and the wait for the next
one doubles with each release in a row. When as many as the owner wants were released, only one is released at a time,
after a longer time, and the owner is stalled. A row, noted in `vmherd.dev/released`, ends when a member that was
created after the last release keeps its labels.
"""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from controller.apimachinery.conditions import time_text, with_timezone
from controller.apimachinery.label_selectors import Selector
from controller.kubevirt.annotations import RELEASED
from controller.kubevirt.busy import time_of
from controller.kubevirt.standby import has_standby_mark
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicas.notes import MAX_NOTICES, plan_note, wake_at
from controller.runtime.actions import AnyResource, Notice, Plan, join, waiting
from controller.runtime.members.groups import Member
from controller.runtime.waits import LONGEST_DELAY, Why, growing_delay
from informers.meta import ObjectMeta, annotations_of, labels_of

T = TypeVar("T", bound=Member)

RELEASE_HELD: Final = "ReleaseHeld"
RELEASE_DELAY: Final = timedelta(seconds=30)
"""The age at which a member whose labels do not match is released, and the first wait after a release."""

STALLED_DELAY: Final = timedelta(minutes=10)
"""The wait if as many members as the owner wants were released in a row."""

SKEW: Final = timedelta(seconds=10)
"""The clock of the API server, which dates members, may be so much behind."""


class Releases(Struct, Generic[T], frozen=True):
    """The members that are released `now`, and those that are `held` until `due`. `number` members were released in a
    row before. `stalls` is True if that are too many.
    """

    now: tuple[T, ...] = ()
    held: tuple[T, ...] = ()
    due: datetime | None = None
    number: int = 0
    stalls: bool = False


def choose_releases(
    owner: ObjectMeta,
    strange: Iterable[T],
    kept: Collection[T],
    wanted: int,
    now: datetime,
    *,
    beside: Iterable[T] = (),
) -> Releases[T]:
    """Choose among the members whose labels do not match. `kept` are the others, and `wanted` is the number in the
    spec. The members `beside` the wanted ones keep their labels too, so they end a row. Standbys are released last.
    """
    in_order = tuple(sorted(strange, key=lambda each: (has_standby_mark(each.metadata), each.metadata.name)))
    if not in_order:
        return Releases()
    number, last, proof = _row(owner, (*kept, *beside), now)
    stalls = number >= max(wanted, 1)
    delay = STALLED_DELAY if stalls else growing_delay(number, RELEASE_DELAY, LONGEST_DELAY)
    due = min([last + delay, *proof]) if number else now
    young = [each for each in in_order if is_young(each.metadata, now)]
    ripe = [each for each in in_order if each not in young]
    # Nothing takes the place of a member that the owner has too many. A new standby takes the place of a standby.
    own, ripe_own = (sum(not has_standby_mark(each.metadata) for each in group) for group in (in_order, ripe))
    most = min(max(own + len(kept) - wanted, 0), ripe_own)
    if due <= now:
        most = max(most, wanted - number, 1) if number else len(ripe)
    held = (*ripe[most:], *young)
    times = [(with_timezone(each.metadata.creation_timestamp) or now) + RELEASE_DELAY for each in young]
    wake = min((each for each in (due, *times) if each > now), default=now)
    return Releases(tuple(ripe[:most]), held, wake if held else None, number, stalls and bool(held))


def is_young(meta: ObjectMeta, now: datetime) -> bool:
    """If the creation time is more than `RELEASE_DELAY` in the future, a clock is wrong, and the result is False."""
    created = with_timezone(meta.creation_timestamp)
    return created is not None and abs(now - created) < RELEASE_DELAY


def plan_row(
    resource: AnyResource, owner: ObjectMeta, releases: Releases[T], selector: Selector, now: datetime
) -> Plan:
    """Note the members that are released now, and say why others wait. The caller puts the plan before the releases."""
    told = [f"the labels of {each.metadata.name} do not match: {_wrong(each, selector)}" for each in releases.now]
    notices = [Notice(reason="Released", message=text, warning=False) for text in told[:MAX_NOTICES]]
    parts = [Plan(notices=tuple(notices))]
    if releases.now:
        note = f"{releases.number + len(releases.now)} {time_text(now)}"
        parts.append(plan_note(resource, owner, {RELEASED: note}, "notes the members that it releases"))
    if not releases.held:
        return join(parts)
    first = releases.held[0]
    text = f"the labels of {first.metadata.name} do not match: {_wrong(first, selector)}"
    fields: dict[str, Any] = {"names": (first.metadata.name,), "remedy": _remedy(first, selector)}
    if releases.stalls:
        text += f"; {releases.number} in a row were released, so the next one waits"
        parts.append(waiting(text, Why.USER, stall=RELEASE_HELD, **fields))
    else:
        text += "; a webhook or another controller may have changed them soon after its creation"
        more = f", and {len(releases.held) - 1} more" if len(releases.held) > 1 else ""
        parts.append(waiting(f"the release of {first.metadata.name} waits{more}", **fields))
    parts += [wake_at([releases.due and max(releases.due, now)], now)]
    once = f"release-held {owner.generation} {releases.stalls}"
    return join((*parts, Plan(notices=(Notice(reason=RELEASE_HELD, message=text, once=once),))))


def _wrong(member: Member, selector: Selector) -> str:
    return f"they lack {', '.join(selector.unmet(labels_of(member.metadata)))}"


def _remedy(member: Member, selector: Selector) -> str:
    """Return the command that gives the member its labels back, or "" if the selector does not name their values."""
    labels = labels_of(member.metadata)
    lost = [f"{name}={value}" for name, value in selector.equalities if labels.get(name) != value]
    kind = "vmi" if isinstance(member, VirtualMachineInstance) else "vm"
    return f"kubectl label --overwrite {kind} {member.metadata.name} {' '.join(lost)}" if lost else ""


def _row(owner: ObjectMeta, kept: Iterable[Member], now: datetime) -> tuple[int, datetime, list[datetime]]:
    """Return the number of releases in a row, the time of the last one, and the times at which members end the row."""
    number, _, at = annotations_of(owner).get(RELEASED, "").partition(" ")
    last = time_of(at)
    if not number.isdigit() or last is None or last > now + RELEASE_DELAY:
        return 0, now, []
    created = [with_timezone(each.metadata.creation_timestamp) for each in kept]
    proof = [each + 2 * RELEASE_DELAY for each in created if each is not None and each >= last - SKEW]
    return (0 if any(each <= now for each in proof) else int(number[:9])), last, proof
