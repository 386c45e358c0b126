"""The one clock of refused writes: it doubles, it is for one write, and it returns the last answer of the server."""

import asyncio
from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS, VMS
from controller.runtime.actions import (
    Action,
    Create,
    Delete,
    Done,
    Outcome,
    Patch,
    Rejected,
    SuccessorRefused,
    ThreeWayMerge,
    Unknown,
)
from controller.runtime.execute.births import Owner
from controller.runtime.execute.refusals import FIRST_WAIT_S, LONGEST_WAIT_S, Refusal, Refusals
from informers.errors import Conflict, Invalid, TransportError
from informers.meta import ObjectKey
from informers.objects import PatchType
from tests.builders import NOW
from tests.fakes.requests import refusal

pytestmark = pytest.mark.looptime

POOL = Owner(ObjectKey("default", "web"), "pool", generation=1, members=3)
MERGE = ThreeWayMerge(resource=VMS, key=ObjectKey("default", "web-1"), uid="u", old=b"", new=b"", why="")
CREATE = Create(resource=VMIS, key=ObjectKey("default", "web-a"), body=b"{}", owner_uid="pool", why="")
DELETE = Delete(resource=VMS, key=MERGE.key, uid="u", why="")
DENIAL = refusal(403, "Forbidden", "denied")
DENIED = Rejected(MERGE, DENIAL)


def note(**annotations: str) -> Patch:
    body = msgspec.json.encode({"metadata": {"uid": "u", "annotations": annotations}})
    return Patch(resource=VMS, key=MERGE.key, body=body, type=PatchType.MERGE, why="")


def wait_s(outcome: Outcome) -> float:
    return outcome.wait_s if isinstance(outcome, Rejected | Unknown) else 0.0


def waits(*outcomes: Outcome) -> list[float]:
    """The seconds that web-1 waits after each of these outcomes, one reconciliation after the other."""
    refusals = Refusals()
    return [wait_s(refusals.timed(POOL, outcome)) for outcome in outcomes]


def refused(*actions: Action, owner: Owner = POOL) -> Refusals:
    refusals = Refusals()
    for action in actions:
        refusals.timed(owner, Rejected(action, DENIAL))
    return refusals


CHANGED = Rejected(MERGE, Conflict("changed", code=409))
UNREACHABLE = Rejected(MERGE, TransportError("lost", sent=False))
LOST_RACE = Rejected(MERGE, Invalid("the server rejected our request due to an error in our request", code=422))
POLICY = Rejected(MERGE, Invalid("denied request: too many labels", code=422))
WAITS: dict[str, tuple[list[Outcome], list[float]]] = {
    # name: (outcomes, the last waits)
    "the wait doubles": ([DENIED] * 3, [FIRST_WAIT_S, 2 * FIRST_WAIT_S, 4 * FIRST_WAIT_S]),
    "the wait has a limit": ([DENIED] * 30, [LONGEST_WAIT_S]),
    "a success ends the series": ([DENIED, DENIED, Done(MERGE), DENIED], [0, FIRST_WAIT_S]),
    "a conflict does not end it": ([DENIED, CHANGED, DENIED], [0, 2 * FIRST_WAIT_S]),
    "a conflict is no refusal": ([CHANGED], [0]),
    "an outage is no refusal": ([UNREACHABLE], [0]),
    "a lost race is no refusal": ([LOST_RACE], [0]),
    "a policy may answer with 422": ([POLICY], [FIRST_WAIT_S]),
}


@pytest.mark.parametrize(("outcomes", "expected"), WAITS.values(), ids=WAITS)
async def test_the_wait_of_a_refused_write(outcomes: list[Outcome], expected: list[float]):
    assert waits(*outcomes)[-len(expected) :] == expected


@pytest.mark.parametrize("last", [DENIED, Unknown(MERGE, DENIAL), SuccessorRefused(MERGE, DENIAL)])
async def test_the_answer_until_the_next_try_is_the_last_one(last: Rejected | Unknown):
    refusals = Refusals()
    refusals.timed(POOL, last)
    await asyncio.sleep(1)
    answer = refusals.answer(POOL, MERGE)
    assert answer is not None
    assert (answer.message, answer.wait_s, answer.is_repeated) == (last.message, FIRST_WAIT_S - 1, True)
    await asyncio.sleep(FIRST_WAIT_S - 1)
    assert refusals.answer(POOL, MERGE) is None


@pytest.mark.parametrize(
    ("first", "other", "is_delayed"),
    [
        pytest.param(note(mark="until 10:00"), note(mark="until 10:05"), True, id="the same note with another value"),
        pytest.param(note(mark="x"), note(other="x"), False, id="another note"),
        pytest.param(note(mark="x"), DELETE, False, id="another verb"),
        pytest.param(CREATE, replace(CREATE, key=ObjectKey("default", "web-b")), True, id="a create of the resource"),
        pytest.param(CREATE, replace(CREATE, resource=CONTROLLER_REVISIONS), False, id="a create of another resource"),
    ],
)
async def test_a_refused_write_delays_the_same_note_and_all_creates_of_its_resource(
    first: Action, other: Action, is_delayed: bool
):
    assert (refused(first).answer(POOL, other) is not None) is is_delayed


async def test_a_change_of_the_spec_ends_the_wait():
    refusals = refused(MERGE, CREATE)
    changed = POOL._replace(generation=2)
    assert [refusals.answer(changed, each) for each in (MERGE, CREATE)] == [None, None]
    assert wait_s(refusals.timed(changed, DENIED)) == FIRST_WAIT_S


async def test_a_create_is_tried_again_once_for_each_member_that_goes():
    refusals = refused(CREATE)
    assert refusals.answer(POOL._replace(members=4), CREATE) is not None
    less = POOL._replace(members=2)
    assert refusals.answer(less, CREATE) is None
    assert wait_s(refusals.timed(less, Rejected(CREATE, DENIAL))) == 2 * FIRST_WAIT_S
    assert refusals.answer(less, CREATE) is not None


async def test_a_member_that_was_made_just_before_the_refusal_counts_when_it_goes():
    refusals = refused(CREATE, owner=POOL._replace(members=0))
    assert refusals.answer(POOL, CREATE) is not None
    assert refusals.answer(POOL._replace(members=2), CREATE) is None


async def test_a_successor_of_the_same_name_does_not_wait():
    assert refused(MERGE).answer(POOL._replace(uid="another"), MERGE) is None


async def test_the_plan_sees_the_members_that_wait_whatever_the_wall_clock_says():
    refusals = refused(note(mark="x"), CREATE)
    await asyncio.sleep(FIRST_WAIT_S - 1)
    later = NOW + timedelta(days=1)
    assert refusals.waiting(POOL, (VMS, VMIS), later) == {"web-1": Refusal(later + timedelta(seconds=1), "denied")}
    assert refusals.waiting(POOL, (VMIS,), later) == {}
    await asyncio.sleep(1)
    assert refusals.waiting(POOL, (VMS,), NOW) == {}


async def test_a_deleted_member_leaves_no_wait_to_its_successor():
    refusals = refused(note(mark="x"), MERGE)
    refusals.timed(POOL, Done(DELETE))
    assert refusals.waiting(POOL, (VMS,), NOW) == {}


async def test_a_series_that_nobody_continues_is_forgotten():
    refusals = refused(MERGE)
    await asyncio.sleep(FIRST_WAIT_S + LONGEST_WAIT_S)
    refusals.timed(POOL._replace(uid="another"), Rejected(CREATE, DENIAL))
    assert wait_s(refusals.timed(POOL, DENIED)) == FIRST_WAIT_S


async def test_p22_an_object_that_is_gone_soon_after_its_create_is_made_again_with_growing_delays():
    """The garbage collector knows of a deletion of the set that the cache does not show yet."""
    refusals, made = Refusals(), list[float]()
    revision = replace(CREATE, resource=CONTROLLER_REVISIONS, key=MERGE.key)
    told = (True, "ControllerRevision web-1 was created and is gone again")
    for second in range(400):
        fewer = POOL._replace(members=second % 3)
        answer = refusals.answer(fewer, revision)
        if answer is None:
            made.append(second)
            assert refusals.timed(fewer, Done(revision, "1")) == Done(revision, "1")
        else:
            assert (answer.is_repeated, answer.message) == told
        await asyncio.sleep(1)
    assert made == [0, 1, 21, 61, 141, 301]
    assert refusals.answer(POOL, replace(revision, key=ObjectKey("default", "web-2"))) is None, "another revision"
    assert refusals.answer(POOL._replace(generation=2), revision) is None, "a change of the spec ends the delay"
    refusals.timed(POOL, Done(replace(DELETE, resource=CONTROLLER_REVISIONS)))
    assert refusals.answer(POOL, revision) is None, "we deleted it ourselves"


async def test_p22_a_vm_that_its_user_deletes_again_and_again_comes_back_at_once():
    refusals = Refusals()
    for _ in range(5):
        assert refusals.answer(POOL, CREATE) is None
        refusals.timed(POOL, Done(CREATE, "1"))
