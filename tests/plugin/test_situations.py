"""What the plugin reads from the status alone, if a user may not read the VMs."""

import pytest
from msgspec.structs import replace

from controller.kinds import POOLS
from plugin.views.reasons import reasons_of
from plugin.views.rollout import State, progress_of
from plugin.views.situation import Member, Situation, situation_from_status
from tests.builders import NOW
from tests.pool_builders import pool

PROBLEM = "web-3: ImagePullBackOff, Back-off pulling image"


def condition(type_: str, reason: str) -> dict[str, str]:
    return {"type": type_, "status": "True", "reason": reason, "message": PROBLEM}


def situation(**status: object):
    owner = pool(status={"replicas": 3, "readyReplicas": 2, **status})
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


@pytest.mark.parametrize(
    ("nodes", "notes"),
    [
        ("aab", []),
        ("aaabb", []),
        ("aaab", ["a has 3 of 4 VMs, and its loss takes them all"]),
        ("aaabb ", []),
        ("aaa ", ["a has 3 of 3 VMs, and its loss takes them all"]),
    ],
)
def test_why_names_a_node_that_has_most_vms_if_nothing_is_wrong(nodes: str, notes: list[str]):
    members = tuple(
        Member(kind="vm", name=f"web-{n}", is_ready=True, node=node.strip()) for n, node in enumerate(nodes)
    )
    well = replace(situation(), members=members)
    assert [each.text for each in reasons_of(well, None, NOW) if each.topic != "leader"] == notes
    assert [each.topic for each in reasons_of(replace(well, found="a problem"), None, NOW)] == ["cause", "leader"]


def test_a_new_pool_is_not_observed():
    assert not situation(observedGeneration=-1).is_observed


def test_each_way_out_of_a_return_and_of_a_disk_without_an_owner_is_a_line_to_try():
    returned = situation(printableStatus="RolledBack", updatedReplicas=0)
    assert "kubectl vmherd rollout undo vmpool/web" in tried(returned)
    said = "the disk data-3 has no owner: delete it, or annotate the pool with vmherd.dev/adopt-disks=true to use it"
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedScaleOut", "message": said}
    [line] = tried(situation(conditions=[failure]))
    assert line.startswith("kubectl annotate vmpool/web vmherd.dev/adopt-disks=true  # only if")


def tried(found: Situation) -> list[str]:
    return [each.text for each in reasons_of(found, None, NOW) if each.topic == "try"]
