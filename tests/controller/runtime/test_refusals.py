"""Members whose change the server refused wait, and the wait grows."""

import asyncio
from datetime import timedelta

import pytest

from controller.kubevirt.resources import VMS
from controller.runtime.actions import Done, Outcome, Rejected, ThreeWayMerge
from controller.runtime.execute.refusals import FIRST_WAIT_S, LONGEST_WAIT_S, Refusal, Refusals
from informers.errors import Conflict, TransportError
from informers.meta import ObjectKey
from tests.builders import NOW
from tests.fakes.requests import refusal

pytestmark = pytest.mark.looptime

POOL = ObjectKey("default", "web")
MERGE = ThreeWayMerge(resource=VMS, key=ObjectKey("default", "web-1"), uid="u", old=b"", new=b"", why="")
DENIED = Rejected(MERGE, refusal(403, "Forbidden", "denied"))


def waits(*outcomes: Outcome) -> list[float]:
    """The seconds that web-1 waits after each of these outcomes, one reconciliation after the other."""
    refusals, found = Refusals(), []
    for outcome in outcomes:
        refusals.observe(POOL, [outcome])
        waiting = refusals.waiting(POOL, NOW).get("web-1")
        found.append((waiting.until - NOW).total_seconds() if waiting is not None else 0)
    return found


async def test_the_wait_of_a_refused_member_doubles_up_to_a_limit():
    assert waits(*[DENIED] * 3) == [FIRST_WAIT_S, 2 * FIRST_WAIT_S, 4 * FIRST_WAIT_S]
    assert waits(*[DENIED] * 30)[-1] == LONGEST_WAIT_S


async def test_a_success_ends_the_series():
    assert waits(DENIED, DENIED, Done(MERGE), DENIED)[2:] == [0, FIRST_WAIT_S]


@pytest.mark.parametrize("error", [Conflict("changed", code=409), TransportError("lost", sent=False)])
async def test_a_conflict_or_an_outage_is_no_refusal(error):
    assert waits(Rejected(MERGE, error)) == [0]


async def test_a_member_is_tried_again_when_its_wait_is_over_whatever_the_wall_clock_says():
    refusals = Refusals()
    refusals.observe(POOL, [DENIED])
    await asyncio.sleep(FIRST_WAIT_S - 1)
    assert refusals.waiting(POOL, NOW + timedelta(days=1)) == {
        "web-1": Refusal(NOW + timedelta(days=1, seconds=1), DENIED.message)
    }
    await asyncio.sleep(1)
    assert refusals.waiting(POOL, NOW - timedelta(days=1)) == {}
    refusals.observe(POOL, [DENIED])
    refusals.forget(POOL)
    assert refusals.waiting(POOL, NOW) == {}
