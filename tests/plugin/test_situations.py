"""What the plugin reads from the status alone, if a user may not read the VMs."""

import pytest

from controller.kinds import POOLS
from plugin.views.rollout import State, progress_of
from plugin.views.situation import situation_from_status
from tests.pool_builders import pool

PROBLEM = "web-3: ImagePullBackOff, Back-off pulling image"
COUNTS = {"replicas": 3, "readyReplicas": 2}


def condition(type_: str, reason: str) -> dict[str, str]:
    return {"type": type_, "status": "True", "reason": reason, "message": PROBLEM}


def situation(**status: object):
    owner = pool(status={**COUNTS, **status})
    return situation_from_status(POOLS, POOLS.group, owner, owner.status)


WORDS = {
    "the word": ({"printableStatus": "Healing"}, "Healing"),
    "the condition Reconciling of a takeover": ({"conditions": [condition("Reconciling", "Updating")]}, "Updating"),
    "the condition Stalled of a takeover": ({"conditions": [condition("Stalled", "InvalidSpec")]}, "Degraded"),
    "the counts of KubeVirt's own controller": ({}, "Degraded"),
}


@pytest.mark.parametrize(("status", "expected"), WORDS.values(), ids=WORDS)
def test_the_word_comes_from(status, expected):
    assert situation(**status).status == expected


def test_a_rollout_fails_if_the_status_says_that_it_is_stalled():
    stalled = progress_of(situation(conditions=[condition("Stalled", "ProgressDeadlineExceeded")]))
    assert (stalled.state, stalled.message) == (State.FAILED, f'vmpool "web" stalled: {PROBLEM}')
    assert progress_of(situation(conditions=[condition("Reconciling", "Degraded")])).state is State.WAITING


@pytest.mark.parametrize(("ready", "unavailable"), [(3, 0), (1, 2), (None, 3)])
def test_the_replicas_that_are_not_ready_are_unavailable(ready: int | None, unavailable: int):
    assert situation(readyReplicas=ready).unavailable == unavailable


def test_a_new_pool_is_not_observed():
    assert not situation(observedGeneration=-1).is_observed
