"""The result of a reconciliation. It depends on the plan, and on the outcomes of the plan's actions."""

import pytest

from controller.kubevirt.resources import VMIS
from controller.runtime.actions import Confirm, Create, Delete, Done, Missing, Outcome, Plan, Rejected, Skipped, Unknown
from controller.runtime.result import LOOK_AGAIN_S, After, AwaitChange, Result, Retry, facts_of, result_of, retry_after
from informers import errors
from informers.meta import ObjectKey

CREATE = Create(resource=VMIS, key=ObjectKey("ns", "a"), body=b"{}", owner_uid="u", why="one is missing")
DELETE = Delete(resource=VMIS, key=ObjectKey("ns", "b"), uid="b-uid", why="surplus")

QUOTA = errors.Forbidden("exceeded quota", code=403, reason="Forbidden")
TERMINATING = errors.Forbidden("is being terminated", code=403, reason="Forbidden", causes=("NamespaceTerminating",))
BUSY = errors.TooManyRequests("too many requests", code=429, retry_after_s=7.0)
LOST = errors.TransportError("connection reset", sent=True)


REFUSED = Rejected(CREATE, QUOTA)
LATER = Retry("exceeded quota", not_before_s=7.0, outage=True)
LOST_CREATE = (Unknown(CREATE, LOST), Skipped(CREATE))

RESULTS: dict[str, tuple[Plan, tuple[Outcome, ...], Result]] = {
    "a pass with nothing to do waits for the next change": (Plan(), (), AwaitChange()),
    "a pass that wrote requests a requeue": (Plan(), (Done(CREATE), Missing(DELETE)), After(LOOK_AGAIN_S)),
    "a plan with a requeue time is made again then": (Plan(requeue_after_s=600.0), (), After(600.0)),
    "a failed write is retried with backoff": (Plan(), (REFUSED, Skipped(CREATE)), Retry("exceeded quota")),
    "a failure on the server side is an outage": (Plan(), LOST_CREATE, Retry("connection reset", outage=True)),
    "one among others, too": (Plan(), (REFUSED, Unknown(DELETE, LOST)), Retry("exceeded quota", outage=True)),
    "a retry respects the Retry-After of the server": (Plan(), (REFUSED, Rejected(CREATE, BUSY)), LATER),
    "nothing is retried in a terminating namespace": (Plan(), (Rejected(CREATE, TERMINATING),), AwaitChange()),
    "a failed pass keeps the requeue time of its plan": (
        Plan(requeue_after_s=60.0),
        (REFUSED,),
        Retry("exceeded quota", also_after_s=60.0),
    ),
}


@pytest.mark.parametrize(("plan", "outcomes", "expected"), RESULTS.values(), ids=RESULTS)
def test_the_result_of_a_pass(plan: Plan, outcomes: tuple[Outcome, ...], expected: Result) -> None:
    assert result_of(plan, outcomes, settled=True) == expected


@pytest.mark.parametrize(
    ("error", "outage"),
    [
        (LOST, True),
        (errors.TransportError("connection refused", sent=False), True),
        (errors.ServerError("etcdserver: request timed out", code=500), True),
        (errors.ServerError("rpc error: code = Unavailable desc = transport is closing", code=500), True),
        (errors.ServerError("Internal error occurred: failed calling webhook: etcdserver: no", code=500), False),
        (errors.ServerError("bad gateway", code=502), False),
        (errors.ServerError("try again later", code=503), True),
        (errors.ServerTimeout("too slow", code=504), True),
        (BUSY, True),
        (QUOTA, False),
        (errors.Conflict("changed", code=409), False),
        (errors.Invalid("no domain", code=422), False),
        (errors.NotFound("no namespace", code=404), False),
        (errors.Unauthorized("who?", code=401), False),
        (errors.StatusError("bad request", code=400), False),
    ],
    ids=repr,
)
def test_an_outage_is_an_error_that_does_not_depend_on_the_request(error: errors.ApiError, outage: bool) -> None:
    result = retry_after(error)
    assert (result.why, result.outage) == (str(error), outage)


@pytest.mark.parametrize("requeue_s", [None, 600.0, 5.0])
def test_a_webhook_that_cannot_be_called_is_tried_again_within_30_seconds(requeue_s: float | None) -> None:
    error = errors.ServerError("Internal error occurred: failed calling webhook: connection refused", code=500)
    result = result_of(Plan(requeue_after_s=requeue_s), (), settled=True, other_error=error)
    assert result == Retry(str(error), also_after_s=min(30.0, requeue_s or 30.0))
    assert retry_after(error, QUOTA).also_after_s == 30.0


def test_a_conflict_with_another_writer_is_no_failure() -> None:
    outcomes = (Rejected(DELETE, errors.Conflict("the object has been modified", code=409)), Skipped(CREATE))
    assert result_of(Plan(), outcomes, settled=True) == Retry("the object has been modified", lost_race=True)
    told = {"conflict": "the object has been modified"}
    assert facts_of(Plan(), outcomes) == {"create_skipped": 1, "delete_rejected": 1, **told}


def test_an_error_outside_the_plan_is_retried_and_reported_after_the_failures_of_the_plan() -> None:
    busy = Retry("too many requests", not_before_s=7.0, outage=True)
    assert result_of(Plan(), (Done(CREATE),), settled=True, other_error=BUSY) == busy
    lost = Retry("connection reset", outage=True)
    assert result_of(Plan(), (Rejected(CREATE, TERMINATING),), settled=True, other_error=LOST) == lost
    both = result_of(Plan(), (Rejected(CREATE, QUOTA),), settled=True, other_error=BUSY)
    assert both == Retry("exceeded quota", not_before_s=7.0, outage=True)
    assert facts_of(Plan(), (Done(CREATE),), other_error=BUSY)["failure"] == "too many requests"


def test_facts_name_ten_writes_that_happened_and_count_the_rest() -> None:
    confirm = Confirm(resource=VMIS, key=CREATE.key, uid="u", why="before adopting")
    facts = facts_of(Plan(), (Done(confirm), Done(DELETE), Missing(DELETE), *(Done(CREATE),) * 11))
    assert facts["wrote"] == ["delete virtualmachineinstances/b", *["create virtualmachineinstances/a"] * 9]
    assert facts["and_more"] == 2


def test_a_retry_after_of_a_day_is_shortened_to_five_minutes() -> None:
    assert retry_after(errors.TooManyRequests("later", code=429, retry_after_s=86_400.0)).not_before_s == 300
