"""The result of a reconciliation. It depends on the plan, and on the outcomes of the plan's actions."""

from __future__ import annotations

import pytest

from controller.kubevirt.resources import VMIS
from controller.runtime.actions import Create, Delete, Done, Missing, Plan, Rejected, Skipped, Unknown
from controller.runtime.result import LOOK_AGAIN_S, After, AwaitChange, Retry, facts_of, result_of, retry_after
from informers import errors
from informers.meta import ObjectKey

CREATE = Create(resource=VMIS, key=ObjectKey("ns", "a"), body=b"{}", owner_uid="u", why="one is missing")
DELETE = Delete(resource=VMIS, key=ObjectKey("ns", "b"), uid="b-uid", why="surplus")

QUOTA = errors.Forbidden("exceeded quota", code=403, reason="Forbidden")
TERMINATING = errors.Forbidden("is being terminated", code=403, reason="Forbidden", causes=("NamespaceTerminating",))
BUSY = errors.TooManyRequests("too many requests", code=429, retry_after_s=7.0)
LOST = errors.TransportError("connection reset", sent=True)


def test_a_pass_with_nothing_to_do_waits_for_the_next_change() -> None:
    assert result_of(Plan(), (), settled=True) == AwaitChange()


def test_a_pass_that_waits_for_the_cache_requests_a_requeue() -> None:
    assert result_of(Plan(held="the cache is behind"), (), settled=False) == After(LOOK_AGAIN_S)


def test_a_pass_that_wrote_requests_a_requeue() -> None:
    assert result_of(Plan(), (Done(CREATE), Missing(DELETE)), settled=True) == After(LOOK_AGAIN_S)


def test_a_plan_with_a_requeue_time_is_made_again_then() -> None:
    assert result_of(Plan(requeue_after_s=600.0), (), settled=True) == After(600.0)


def test_a_failed_write_is_retried_with_backoff() -> None:
    assert result_of(Plan(), (Rejected(CREATE, QUOTA), Skipped(CREATE)), settled=True) == Retry("exceeded quota")


def test_a_write_that_failed_on_the_server_side_is_retried_as_an_outage() -> None:
    outcomes = (Unknown(CREATE, LOST), Skipped(CREATE))
    assert result_of(Plan(), outcomes, settled=True) == Retry("connection reset", outage=True)


def test_one_server_side_failure_among_others_makes_an_outage() -> None:
    outcomes = (Rejected(CREATE, QUOTA), Unknown(DELETE, LOST))
    assert result_of(Plan(), outcomes, settled=True) == Retry("exceeded quota", outage=True)


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


def test_a_retry_respects_the_retry_after_of_the_server() -> None:
    outcomes = (Rejected(CREATE, QUOTA), Rejected(CREATE, BUSY))
    assert result_of(Plan(), outcomes, settled=True) == Retry("exceeded quota", not_before_s=7.0, outage=True)


def test_nothing_is_retried_in_a_terminating_namespace() -> None:
    assert result_of(Plan(), (Rejected(CREATE, TERMINATING),), settled=True) == AwaitChange()


CHANGED = errors.Conflict("the object has been modified", code=409)


def test_a_conflict_with_another_writer_is_no_failure() -> None:
    outcomes = (Rejected(DELETE, CHANGED), Skipped(CREATE))
    assert result_of(Plan(), outcomes, settled=True) == Retry("the object has been modified", lost_race=True)
    assert facts_of(Plan(), outcomes) == {
        "create_skipped": 1,
        "delete_rejected": 1,
        "conflict": "the object has been modified",
    }


def test_a_conflict_beside_a_failure_is_a_failure() -> None:
    outcomes = (Rejected(DELETE, CHANGED), Rejected(CREATE, QUOTA))
    result = result_of(Plan(), outcomes, settled=True)
    assert isinstance(result, Retry)
    assert not result.lost_race
    assert facts_of(Plan(), outcomes)["failure"] == "exceeded quota"


def test_a_failed_pass_keeps_the_requeue_time_of_its_plan() -> None:
    outcomes = (Rejected(CREATE, QUOTA),)
    assert result_of(Plan(requeue_after_s=60.0), outcomes, settled=True) == Retry("exceeded quota", also_after_s=60.0)


def test_facts_count_outcomes_and_name_the_first_failure() -> None:
    outcomes = (Done(CREATE), Done(CREATE), Rejected(CREATE, QUOTA), Skipped(CREATE))
    assert facts_of(Plan(), outcomes) == {
        "create_done": 2,
        "create_rejected": 1,
        "create_skipped": 1,
        "failure": "exceeded quota",
    }


def test_a_pass_that_did_nothing_has_no_facts() -> None:
    assert facts_of(Plan(held="paused"), ()) == {}


def test_an_error_outside_the_plan_is_retried_and_reported_after_the_failures_of_the_plan() -> None:
    busy = Retry("too many requests", not_before_s=7.0, outage=True)
    assert result_of(Plan(), (Done(CREATE),), settled=True, other_error=BUSY) == busy
    lost = Retry("connection reset", outage=True)
    assert result_of(Plan(), (Rejected(CREATE, TERMINATING),), settled=True, other_error=LOST) == lost
    both = result_of(Plan(), (Rejected(CREATE, QUOTA),), settled=True, other_error=BUSY)
    assert both == Retry("exceeded quota", not_before_s=7.0, outage=True)
    assert facts_of(Plan(), (Done(CREATE),), other_error=BUSY) == {"create_done": 1, "failure": "too many requests"}


def test_a_retry_after_of_a_day_is_shortened_to_five_minutes() -> None:
    assert retry_after(errors.TooManyRequests("later", code=429, retry_after_s=86_400.0)).not_before_s == 300
