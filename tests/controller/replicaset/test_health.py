"""R11: the conditions of kstatus, the word, and the first problem of a set."""

import msgspec
import pytest
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition, find_true, time_text
from controller.kubevirt.annotations import PROGRESS_DEADLINE, PROTECT, ROLLING_UPDATE, TEMPLATE_HASH
from controller.kubevirt.replicaset_types import ReplicaSetStatus
from controller.replicaset.health import WAITS_FOR_POD
from controller.replicaset.plan import plan
from controller.replicaset.status import next_status
from tests import builders
from tests.builders import LABELS, replicaset, seconds_ago, snapshot
from tests.kstatus import kstatus_of
from tests.strategies import template_hash_of

ROLLS = {ROLLING_UPDATE: "maxUnavailable=1"}


def vmi(name, owner, *, hashed=None, annotations=None, obstacle=None, **changes):
    """A VMI of the set, with the hash of its template. `obstacle` is the message of the condition `Synchronized`."""
    labels = {**LABELS, TEMPLATE_HASH: hashed or template_hash_of(owner)}
    conditions = [Condition(type="Synchronized", status="False", reason="ErrImagePull", message=obstacle)]
    more = {} if obstacle is None else {"conditions": conditions}
    return builders.vmi(name, owner=owner, labels=labels, annotations=annotations, **more, **changes)


STARTING = {"phase": "Scheduling", "ready": None, "age_s": 60}
LOST = {"ready": False, "ready_for_s": 60, "entered_s": {"Running": 300}}
BOOTING = {"ready": False, "ready_for_s": 59, "entered_s": {"Running": 60}, "age_s": 90}


def status_of(owner, *members, outcomes=(), **circumstances) -> ReplicaSetStatus:
    return next_status(snapshot(owner, members, **circumstances), outcomes)


def seen(owner, status):
    """What kstatus says about a set with this status."""
    conditions = [msgspec.to_builtins(each) for each in status.conditions or ()]
    generations = {"observedGeneration": status.observed_generation, "conditions": conditions}
    return kstatus_of({"metadata": {"generation": owner.metadata.generation}, "status": generations})


WORDS = {
    "all VMIs are ready": ({"replicas": 1}, [{}], "Running", "Current"),
    "no VMI is wanted": ({"replicas": 0}, [], "Stopped", "Current"),
    "paused": ({"replicas": 2, "paused": True}, [{}], "Paused", "Current"),
    "invalid": ({"match_labels": {}}, [{"hashed": "old"}], "Degraded", "Failed"),
    "a VMI is missing": ({"replicas": 2}, [{}], "Scaling", "InProgress"),
    "a VMI is surplus": ({"replicas": 1}, [{}, {}], "Scaling", "InProgress"),
    "a surplus VMI is protected": ({"replicas": 0}, [{"annotations": {PROTECT: "true"}}], "Running", "Current"),
    "a VMI starts": ({"replicas": 1}, [STARTING], "Scaling", "InProgress"),
    "a VMI boots": ({"replicas": 1}, [BOOTING], "Scaling", "InProgress"),
    "a VMI of a set that was ready boots": (
        {"replicas": 1, "status": ReplicaSetStatus(printable_status="Running")},
        [BOOTING],
        "Degraded",
        "InProgress",
    ),
    "a VMI lost its readiness": ({"replicas": 1}, [LOST], "Degraded", "InProgress"),
    "a VMI cannot start": ({"replicas": 1}, [{**STARTING, "obstacle": "no image"}], "Degraded", "InProgress"),
    "a VMI starts for too long": ({"replicas": 1}, [{**STARTING, "age_s": 600}], "Degraded", "Failed"),
    "an outdated VMI stays": ({"replicas": 1}, [{"hashed": "old"}], "Running", "Current"),
    "an outdated VMI is replaced": (
        {"replicas": 1, "annotations": ROLLS},
        [{"hashed": "old"}],
        "Updating",
        "InProgress",
    ),
    "an outdated VMI that waits too long is replaced": (
        {"replicas": 1, "annotations": ROLLS},
        [{**STARTING, "hashed": "old", "age_s": 9000}],
        "Updating",
        "InProgress",
    ),
    "an update ends": (
        {"replicas": 1, "annotations": ROLLS, "status": ReplicaSetStatus(printable_status="Updating")},
        [BOOTING],
        "Updating",
        "InProgress",
    ),
}


@pytest.mark.parametrize(("fields", "members", "word", "expected"), WORDS.values(), ids=WORDS)
def test_r11_the_word_and_the_conditions_of_a_set(fields, members, word, expected):
    owner = replicaset(**fields)
    status = status_of(owner, *(vmi(f"web-{number}", owner, **each) for number, each in enumerate(members)))
    assert (status.printable_status, seen(owner, status).status) == (word, expected)


def test_r11_the_message_names_the_vmi_and_its_problem():
    owner = replicaset(replicas=2)
    members = [vmi(name, owner, **STARTING, obstacle="Back-off pulling image") for name in ("web-b", "web-a")]
    status = status_of(owner, *members)
    assert status.problem == "web-a: ImagePullBackOff, Back-off pulling image"
    assert find_true(status.conditions, "Reconciling").message == status.problem


def test_r11_a_change_of_a_problems_message_changes_no_status():
    owner = replicaset(replicas=1)
    first = status_of(owner, vmi("web-a", owner, **STARTING, obstacle="try 7"))
    owner = replace(owner, status=first)
    assert status_of(owner, vmi("web-a", owner, **STARTING, obstacle="try 8")) == first


def test_r11_the_set_is_reconciled_again_at_the_progress_deadline():
    owner = replicaset(replicas=1)
    assert plan(snapshot(owner, [vmi("web-a", owner, **{**STARTING, "age_s": 560})])).requeue_after_s == 40
    assert plan(snapshot(owner, [vmi("web-a", owner, **{**STARTING, "age_s": 600})])).requeue_after_s is None


def test_r11_a_vmi_that_stays_terminating_stalls_the_set_and_is_named_with_its_finalizers():
    owner = replicaset(replicas=1, annotations={PROGRESS_DEADLINE: "60"})
    for since, wakes in ((59, 1), (60, None)):
        stuck = vmi("web-b", owner, deleting=True)
        meta = replace(stuck.metadata, deletion_timestamp=seconds_ago(since), finalizers=("example.com/a", "x/b"))
        members = [vmi("web-a", owner), replace(stuck, metadata=meta)]
        assert plan(snapshot(owner, members)).requeue_after_s == wakes
        status = status_of(owner, *members)
        stalled = find_true(status.conditions, "Stalled")
        assert (stalled is None) == (wakes is not None)
    assert stalled.reason == "ProgressDeadlineExceeded"
    assert stalled.message == status.problem == "web-b: Terminating, held by finalizers: example.com/a, x/b"


def test_r11_a_set_that_wants_more_vmis_than_the_limit_is_stalled():
    owner = replicaset(replicas=2)
    limited = replace(snapshot(owner, [vmi("web-a", owner)]), max_replicas=1)
    assert find_true(next_status(limited, (), plan(limited).waits).conditions, "Stalled").reason == "ReplicasLimited"


IO_ERROR = Condition(type="Paused", status="True", reason="PausedIOError", message="low-level IO error detected")
CAUSES = {
    "its disk has an I/O error": (
        {"ready": False, "conditions": [IO_ERROR]},
        "PausedIOError, low-level IO error detected",
    ),
    "its node does not answer": (
        {"ready": False, "reason": None, "ready_for_s": 60},
        f"NodeLost, its node node-1 does not answer since {time_text(seconds_ago(60))}; {WAITS_FOR_POD}",
    ),
}


@pytest.mark.parametrize(("changes", "expected"), CAUSES.values(), ids=CAUSES)
def test_r11_the_problem_has_the_words_of_kubevirt_or_names_the_node(changes, expected):
    owner = replicaset(replicas=1)
    assert status_of(owner, vmi("vm-0", owner, **changes)).problem == f"vm-0: {expected}"
