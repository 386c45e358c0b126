"""Sentences about what controllers decide and say, and about the controllers as programs."""

from collections.abc import Iterator
from typing import Final

from controller.events.event import EVENTS
from controller.kubevirt import annotations as names
from controller.leaderelection.lease import LEASES
from tests.simulation.judge.replay import DISTURBED_S, HIDING, annotations, owner_by_name
from tests.simulation.judge.sentence import Found, sentence
from tests.simulation.life import Life
from tests.simulation.moments import Moment
from tests.simulation.world import POOLS, SETS

LATE_S: Final = 5.0
"""A request that was on the way when the lease was lost may arrive so much later, in seconds."""


USUAL_ENDS: Final = ("LeaseLost", "the API server does not answer", "the first lists did not arrive")
"""Why a process may end while the API server fails. Its successor continues."""

LONGEST_STEP_S: Final = 2.0


_OF_MOMENTS: Final = {
    "order_does_not_matter": ("order", "A decision does not depend on the order of the members."),
    "grouping_does_not_matter": ("grouping", "A decision does not depend on which members are grouped together."),
    "the_preview_tells_the_truth": ("preview", "The VMs that a preview names are those that the plan deletes."),
    "an_undo_returns_to_the_template_before": ("undo", "An undo returns to the template before the present one."),
    "the_next_pass_is_asked_for": (
        "oversleeps",
        "If the time alone changes what is written, a pass is asked for then.",
    ),
    "what_waits_is_told": ("silence", "If something waits, the status and `why` say so with the cause."),
    "all_views_agree": ("views", "Status, `why`, page and metrics name the same counts and the same cause."),
}
"""The sentences about moments: the field of a moment that says what is wrong, and what a user expects."""


def _add(name: str, field: str, expected: str) -> None:
    def look(life: Life) -> Iterator[Found | None]:
        for moment in life.moments:
            if moment.waits or field != "silence":
                yield None
            hides = field == "silence" and life.faults.overlap(moment.at - DISTURBED_S, moment.at, *HIDING)
            if (text := getattr(moment, field)) and not hides:
                yield moment.at, moment.owner, text

    look.__name__, look.__doc__ = name, expected
    sentence(look)


for _name, (_field, _expected) in _OF_MOMENTS.items():
    _add(_name, _field, _expected)


@sentence
def a_refusal_is_told(life: Life) -> Iterator[Found | None]:
    """A refused write on which progress depends is in the status, with the server's words."""
    yield from (None for each in life.asked if each.code == 403)
    for moment in life.moments:
        if moment.refusal and not _is_silent(life, moment):
            yield moment.at, moment.owner, moment.refusal


def _is_silent(life: Life, moment: Moment) -> bool:
    """True if the watch of the sets or pools may show nothing. A status is written only when the cache shows the last
    one.
    """
    plural = (POOLS if moment.kind == "pool" else SETS).plural
    silences = (
        act.at for act in life.story.acts if act.what == "fault" and (act.args[0], act.args[-1]) == ("silent", plural)
    )
    return any(moment.at - DISTURBED_S <= at <= moment.at for at in silences)


@sentence
def nobody_blocks_the_others(life: Life) -> Iterator[Found | None]:
    """What one user writes does not block the controller for all others."""
    yield None
    if life.world.loop.slowest_s > LONGEST_STEP_S:
        yield life.ended_at, "", f"one step took {life.world.loop.slowest_s:.1f} s"


@sentence
def no_error_is_unexpected(life: Life) -> Iterator[Found | None]:
    """No reconciliation and no process ends with an unexpected error."""
    for moment in life.moments:
        yield None
        if moment.error:
            yield moment.at, moment.owner, moment.error
    for text in life.errors:
        if not any(usual in text for usual in USUAL_ENDS):
            yield 0.0, "", text[-700:]


@sentence
def one_controller_writes(life: Life) -> Iterator[Found | None]:
    """Only the holder of the lease writes."""
    holder, since = "", 0.0
    for change in life.changes:
        if change.resource is LEASES and change.actor != holder:
            yield from (None for _ in holder)
            holder, since = change.actor, change.at
        elif change.is_ours and change.resource is not LEASES and change.actor != holder and change.at - since > LATE_S:
            text = f"{change.actor} writes {change.resource.plural}/{change.key.name}, {holder} holds the lease"
            yield change.at, owner_by_name(life, change.key.name), text


@sentence
def an_event_follows_its_note(life: Life) -> Iterator[Found | None]:
    """An Event tells what happened, not what was tried."""
    noted: set[str] = set()
    for change in life.changes:
        if change.resource in (POOLS, SETS) and names.ROLLED_BACK in annotations(change.last):
            noted.add(change.key.name)
        if change.resource is EVENTS and change.before is None and change.last["reason"] == "RolledBack":
            yield None
            owner = change.last["involvedObject"]["name"]
            if owner not in noted:
                yield change.at, owner, f"the Event says {change.last['message']}, but no note says so"
