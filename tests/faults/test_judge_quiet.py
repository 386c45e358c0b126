"""Q1 to Q3 and Q5: for each invariant, histories that keep it and histories that break it."""

from __future__ import annotations

from tests.faults.checks import assert_broken, assert_kept, pool_of, scale, set_of
from tests.faults.judge import Answer, Interval, Run
from tests.faults.made_history import OURS, START, Made, replica_set, vmi
from tests.faults.states import POOL, SET, VM, VMI

PATH = "/apis/kubevirt.io/v1/namespaces/n/virtualmachineinstances"


def test_q1_at_rest_watches_and_the_lease_are_allowed() -> None:
    made = Made()
    set_of(made, 1)
    run = Run(settled_from=made.now)
    made.read(VMI, "", verb="watch")
    made.lease("one", credential="1")
    assert_kept(made, "Q1", run)


def test_q1_a_request_at_rest_is_found() -> None:
    made = Made()
    set_of(made, 1)
    run = Run(settled_from=made.now)
    made.read(SET, "herd")
    assert_broken(made, "Q1", "1 requests at rest, the first is get virtualmachineinstancereplicasets/herd -> 200", run)


def test_q1_a_resource_that_is_listed_again_and_again_is_found() -> None:
    made = Made()
    run = Run(settled_from=made.now)
    for _ in range(10):
        made.read(VMI, "", verb="list")
        made.wait(1)
    assert_broken(made, "Q1", "10 requests to list virtualmachineinstances in a minute", run)


def test_q1_a_status_write_that_changes_nothing_is_found() -> None:
    made = Made()
    set_of(made, 1)
    for _ in range(2):
        made.patch(SET, "herd", {"status": {"replicas": 1}}, by=OURS, subresource="status")
    assert_broken(made, "Q1", "changes nothing")


def test_q1_a_patch_that_only_tests_is_no_write() -> None:
    made = Made()
    pool_of(made, 1)
    uid = made.get(VM, "pool-0")["metadata"]["uid"]
    made.patch(VM, "pool-0", {}, by=OURS, body=[{"op": "test", "path": "/metadata/uid", "value": uid}])
    assert_kept(made, "Q1")


def fail_often(made: Made, number: int, pause_s: float) -> None:
    for _ in range(number):
        made.fail("create", VMI, "herd-a", 403)
        made.wait(pause_s)


def test_q2_failures_with_a_back_off_are_right() -> None:
    made = Made()
    fail_often(made, 40, 1)
    assert_kept(made, "Q2")


def test_q2_a_hot_loop_is_found() -> None:
    made = Made()
    fail_often(made, 40, 0.01)
    assert_broken(made, "Q2", "fails 40 times in 10 s")


def test_q2_a_hot_loop_that_the_proxy_refuses_is_found() -> None:
    answers = tuple(Answer(START + index * 0.01, "PATCH", f"{PATH}/herd-a", 500) for index in range(40))
    assert_broken(Made(), "Q2", "fails 40 times in 10 s", Run(answers=answers))


def test_q2_many_objects_that_fail_often_are_found() -> None:
    made = Made(step_s=0.001)
    for index in range(400):
        made.fail("create", VMI, f"herd-{index}", 403)
    assert_broken(made, "Q2", "failed requests")


def test_q3_a_member_costs_a_create_and_a_delete() -> None:
    made = Made()
    scale(made, set_of(made, 2), 1)
    made.delete(VMI, "herd-a", by=OURS)
    assert_kept(made, "Q3")


def test_q3_a_second_delete_of_a_member_is_found() -> None:
    made = Made()
    pool_of(made, 2)
    for _ in range(2):
        made.delete(VM, "pool-1", by=OURS)
    assert_broken(made, "Q3", "2 requests to delete, allowed are 1")


def test_q3_a_delete_that_lost_a_race_is_sent_again() -> None:
    made = Made()
    scale(made, set_of(made, 2), 1)
    uid = {"preconditions": {"uid": made.get(VMI, "herd-a")["metadata"]["uid"]}}
    made.fail("delete", VMI, "herd-a", 409, body=uid)
    made.delete(VMI, "herd-a", by=OURS)
    assert_kept(made, "Q3")


def test_q3_a_second_attempt_is_allowed_after_a_lost_answer() -> None:
    made = Made()
    owner = made.create(replica_set(1))
    made.create(vmi("herd-a", owner), by=OURS)
    made.fail("create", VMI, "herd-a", 409)
    made.patch(SET, "herd", {"status": {"replicas": 1}}, by=OURS, subresource="status")
    assert_kept(made, "Q3", Run(lost_answers=1, faults=(Interval(START, made.now),)))


def test_q3_many_patches_of_a_member_are_found() -> None:
    made = Made()
    pool_of(made, 1)
    for index in range(20):
        made.patch(VM, "pool-0", {"metadata": {"labels": {"x": str(index)}}}, by=OURS)
    assert_broken(made, "Q3", "20 requests to patch")


def test_q3_a_status_that_is_written_too_often_is_found() -> None:
    made = Made()
    pool_of(made, 1)
    made.wait(60)
    for index in range(20):
        made.patch(POOL, "pool", {"status": {"replicas": index}}, by=OURS, subresource="status")
    assert_broken(made, "Q3", "in a second")


def answers_at(*times: float, retry_after_s: float = 5.0) -> Run:
    first, *rest = times
    refused = Answer(START + first, "POST", PATH, 429, retry_after_s)
    return Run(answers=(refused, *(Answer(START + time, "POST", PATH, 201) for time in rest)))


def test_q5_a_repeat_after_the_time_is_right() -> None:
    assert_kept(Made(), "Q5", answers_at(0, 5.5))


def test_q5_a_repeat_before_the_time_is_found() -> None:
    assert_broken(Made(), "Q5", "is repeated before Retry-After: 5", answers_at(0, 2))


def test_q5_a_very_long_time_is_capped() -> None:
    assert_kept(Made(), "Q5", answers_at(0, 301, retry_after_s=86_400))
