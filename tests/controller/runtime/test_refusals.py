"""Members whose change the server refused wait, and the wait grows."""

from datetime import timedelta

import pytest

from controller.kubevirt.resources import VMS
from controller.runtime.actions import Done, Outcome, Rejected, ThreeWayMerge
from controller.runtime.execute.refusals import FIRST_WAIT, LONGEST_WAIT, Refusals
from informers.errors import Conflict, TransportError
from informers.meta import ObjectKey
from tests.builders import NOW
from tests.fakes.requests import refusal

POOL = ObjectKey("default", "web")
MERGE = ThreeWayMerge(resource=VMS, key=ObjectKey("default", "web-1"), uid="u", old=b"", new=b"", why="")
DENIED = Rejected(MERGE, refusal(403, "Forbidden", "denied"))


def waits(*outcomes: Outcome) -> list[timedelta]:
    """The waits of web-1 after each of these outcomes, one reconciliation after the other."""
    refusals, found = Refusals(), []
    for outcome in outcomes:
        refusals.observe(POOL, [outcome], NOW)
        waiting = refusals.waiting(POOL, NOW).get("web-1")
        found.append(waiting.until - NOW if waiting is not None else timedelta())
    return found


def test_the_wait_of_a_refused_member_doubles_up_to_a_limit():
    assert waits(*[DENIED] * 3) == [FIRST_WAIT, 2 * FIRST_WAIT, 4 * FIRST_WAIT]
    assert waits(*[DENIED] * 30)[-1] == LONGEST_WAIT


def test_a_success_ends_the_series():
    assert waits(DENIED, DENIED, Done(MERGE), DENIED)[2:] == [timedelta(), FIRST_WAIT]


@pytest.mark.parametrize("error", [Conflict("changed", code=409), TransportError("lost", sent=False)])
def test_a_conflict_or_an_outage_is_no_refusal(error):
    assert waits(Rejected(MERGE, error)) == [timedelta()]


def test_a_member_is_tried_again_when_its_wait_is_over():
    refusals = Refusals()
    refusals.observe(POOL, [DENIED], NOW)
    assert refusals.waiting(POOL, NOW + FIRST_WAIT) == {}
    refusals.forget(POOL)
    assert refusals.waiting(POOL, NOW) == {}
