"""What a pass asks for afterwards, from its plan and its outcomes."""

from __future__ import annotations

import pytest

from controller.kubevirt.types import VirtualMachineInstance
from controller.planning import Create, Delete, Done, Plan, Refused, Skipped, Unknown, Vanished
from controller.reconcile import LOOK_AGAIN_S, After, Retry, Settled, facts_of, result_of
from informers.errors import Forbidden, TooManyRequests, TransportError
from informers.meta import ObjectKey
from informers.resource import Resource

VMIS = Resource(
    VirtualMachineInstance,
    group="kubevirt.io",
    version="v1",
    plural="virtualmachineinstances",
    kind="VirtualMachineInstance",
)
CREATE = Create(resource=VMIS, key=ObjectKey("ns", "a"), body=b"{}", owner_uid="u", why="one is missing")
DELETE = Delete(resource=VMIS, key=ObjectKey("ns", "b"), uid="b-uid", why="surplus")

QUOTA = Forbidden("exceeded quota", code=403, reason="Forbidden")
TERMINATING = Forbidden("is being terminated", code=403, reason="Forbidden", causes=("NamespaceTerminating",))
BUSY = TooManyRequests("too many requests", code=429, retry_after_s=7.0)
LOST = TransportError("connection reset", sent=True)


def test_a_pass_with_nothing_to_do_waits_for_the_next_change() -> None:
    assert result_of(Plan(), (), settled=True) == Settled()


def test_a_pass_that_waits_for_the_cache_looks_again_by_itself() -> None:
    assert result_of(Plan(held="the cache is behind"), (), settled=False) == After(LOOK_AGAIN_S)


def test_a_pass_that_wrote_looks_again_by_itself() -> None:
    assert result_of(Plan(), (Done(CREATE), Vanished(DELETE)), settled=True) == After(LOOK_AGAIN_S)


def test_a_plan_that_waits_for_a_moment_is_woken_then() -> None:
    assert result_of(Plan(requeue_after_s=600.0), (), settled=True) == After(600.0)


@pytest.mark.parametrize("failure", [Refused(CREATE, QUOTA), Unknown(CREATE, LOST)])
def test_a_failed_write_is_retried_with_backoff(failure: Refused | Unknown) -> None:
    assert result_of(Plan(), (failure, Skipped(CREATE)), settled=True) == Retry(failure.message)


def test_a_retry_respects_what_the_server_asked_for() -> None:
    outcomes = (Refused(CREATE, QUOTA), Refused(CREATE, BUSY))
    assert result_of(Plan(), outcomes, settled=True) == Retry("exceeded quota", not_before_s=7.0)


def test_nothing_is_retried_in_a_namespace_that_goes_away() -> None:
    assert result_of(Plan(), (Refused(CREATE, TERMINATING),), settled=True) == Settled()


def test_facts_count_outcomes_and_name_the_first_failure() -> None:
    outcomes = (Done(CREATE), Done(CREATE), Refused(CREATE, QUOTA), Skipped(CREATE))
    assert facts_of(Plan(), outcomes) == {
        "create_done": 2,
        "create_refused": 1,
        "create_skipped": 1,
        "failure": "exceeded quota",
    }


def test_a_pass_that_did_nothing_has_no_facts() -> None:
    assert facts_of(Plan(held="paused"), ()) == {}


def test_what_fails_beside_the_plan_is_retried_too_and_told_after_its_failures() -> None:
    assert result_of(Plan(), (Done(CREATE),), settled=True, trouble=BUSY) == Retry("too many requests", 7.0)
    assert result_of(Plan(), (Refused(CREATE, TERMINATING),), settled=True, trouble=LOST) == Retry("connection reset")
    both = result_of(Plan(), (Refused(CREATE, QUOTA),), settled=True, trouble=BUSY)
    assert both == Retry("exceeded quota", not_before_s=7.0)
    assert facts_of(Plan(), (Done(CREATE),), trouble=BUSY) == {"create_done": 1, "failure": "too many requests"}
