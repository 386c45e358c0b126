"""P7 and P17: what a pool reports: counts, revisions, conditions, and one word."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from controller.kubevirt.annotations import HEALED
from controller.kubevirt.vms import BROKEN_STATES
from controller.runtime.plan import (
    AlreadyThere,
    Done,
    Missing,
    Postponed,
    Rejected,
    Skipped,
    Unknown,
)
from informers.errors import Forbidden
from tests.builders import NOW, seconds_ago
from tests.pool_builders import LABELS, pool, revision, vm_spec, vmi, vms
from tests.pool_healing import break_one
from tests.pool_outcomes import (
    CREATE,
    DELETE,
    DISOWN,
    FAILURE,
    FOREIGN,
    KEEP,
    LET_GO,
    LOST,
    PAUSED,
    PRUNE,
    QUOTA,
    REBASE,
    RECORD,
    RELABEL,
    RESTART,
    WEBHOOK,
    condition,
    failure_of,
    status_of,
)
from tests.pool_simulation import PoolSimulation


def updated(**fields):
    """A pool whose template has moved on, and what its snapshot needs beside it."""
    before, now = pool(**fields), pool(spec=vm_spec(image="v2"), generation=2, **fields)
    return now, [revision(before, "web-1", number=1), revision(now, "web-2", number=2)]


def test_p7_counts_are_those_of_the_members_and_those_being_deleted_count_too():
    owner = pool(replicas=9, generation=4)
    stranger = vms(pool(uid="another"), 7)
    machines = (*vms(owner, 0), *vms(owner, 1, ready=False), *vms(owner, 2, deleting=True), *vms(owner, 3, ready=None))
    status = status_of(owner, *machines, *stranger)
    assert (status.replicas, status.ready_replicas) == (4, 2)
    assert (status.observed_generation, status.label_selector) == (4, "app=web")


def test_a_vm_counts_as_updated_once_it_and_its_vmi_are_on_the_newest_revision():
    owner, kept = updated(replicas=4)
    machines = (*vms(owner, 0), *vms(owner, 1, 2, revision="web-2"), *vms(owner, 3, ready=False, revision="web-2"))
    runs = [vmi(machines[0]), vmi(machines[1], revision="web-1"), vmi(machines[2])]
    assert status_of(owner, *machines, vmis=runs, revisions=kept).updated_replicas == 2


def test_an_update_is_not_told_as_done_while_a_vm_is_still_to_come_back():
    owner, kept = updated(replicas=3)
    here, going = vms(owner, 0, revision="web-2")[0], vms(owner, 1, revision="web-2", deleting=True)[0]
    [unaware] = vms(owner, 2, revision="web-2")
    runs = [vmi(here), vmi(going)]
    status = status_of(owner, here, going, unaware, vmis=runs, revisions=kept)
    assert (status.replicas, status.ready_replicas, status.updated_replicas) == (3, 3, 1)


def test_the_revisions_are_the_oldest_in_use_and_the_one_that_everybody_comes_to():
    owner, kept = updated(replicas=2)
    begun = status_of(owner, *vms(owner, 0), *vms(owner, 1, revision="web-2"), revisions=kept)
    assert (begun.current_revision, begun.update_revision) == ("web-1", "web-2")
    ended = status_of(owner, *vms(owner, 0, 1, revision="web-2"), revisions=kept)
    assert (ended.current_revision, ended.update_revision) == ("web-2", "web-2")


def test_r8_r9_counts_follow_while_nothing_may_be_written():
    for owner, settled in [(pool(paused=True), True), (pool(deleting=True), True), (pool(), False)]:
        assert status_of(owner, *vms(owner, 0), settled=settled).replicas == 1


def test_p1_an_invalid_pool_is_observed_and_keeps_what_was_last_known():
    """An autoscaler goes on with the last selector that was good."""
    last = {"labelSelector": "app=web", "currentRevision": "web-1", "updateRevision": "web-2", "replicas": 7}
    owner = pool(selector={}, generation=5, status=last)
    status = status_of(owner, *vms(owner, 0))
    assert (status.observed_generation, status.label_selector) == (5, "app=web")
    assert (status.current_revision, status.update_revision) == ("web-1", "web-2")
    assert (status.replicas, status.ready_replicas, status.updated_replicas) == (1, 1, 0)
    assert status.printable_status == "Degraded"


def test_p17_paused_appears_dated_and_keeps_its_date_while_it_lasts():
    (appeared,) = status_of(pool(paused=True)).conditions
    assert appeared == replace(condition(PAUSED), last_probe_time=NOW, last_transition_time=NOW)
    assert status_of(pool(paused=True, status={"conditions": [PAUSED]})).conditions == (condition(PAUSED),)


def test_p17_paused_goes_on_resume():
    assert status_of(pool(status={"conditions": [PAUSED]})).conditions is None


def test_p17_conditions_of_others_stay_as_they_are_and_none_but_two_types_are_ours():
    owner = pool(paused=True, status={"conditions": [FOREIGN, FAILURE]})
    conditions = status_of(owner, outcomes=[Rejected(CREATE, QUOTA)]).conditions
    assert conditions[0] == condition(FOREIGN)
    assert [each.type for each in conditions[1:]] == ["ReplicaFailure", "ReplicaPaused"]


REASONS = {
    "a refused create": ([Done(CREATE), Rejected(CREATE, QUOTA), Skipped(CREATE)], "FailedScaleOut"),
    "a refused delete": ([Rejected(DELETE, QUOTA)], "FailedScaleIn"),
    "disks that cannot be kept": ([Rejected(DISOWN, QUOTA), Skipped(LET_GO)], "FailedScaleIn"),
    "a refused update of a vm": ([Rejected(REBASE, QUOTA)], "FailedUpdate"),
    "a refused restart": ([Rejected(RESTART, QUOTA)], "FailedUpdate"),
    "a refused label": ([Rejected(RELABEL, QUOTA)], "FailedUpdate"),
    "a revision that cannot be kept": ([Rejected(KEEP, QUOTA), Skipped(CREATE)], "FailedScaleOut"),
    "a revision that an update needs": ([Rejected(KEEP, QUOTA), Skipped(REBASE)], "FailedUpdate"),
    "a refused pruning": ([Rejected(PRUNE, QUOTA)], "FailedRevisionPruning"),
    "a broken webhook, whatever became of the write": ([Unknown(CREATE, WEBHOOK)], "FailedScaleOut"),
    "the first of several": ([Rejected(DELETE, QUOTA), Rejected(CREATE, WEBHOOK)], "FailedScaleIn"),
}


@pytest.mark.parametrize(("outcomes", "reason"), REASONS.values(), ids=REASONS)
def test_p17_a_failure_appears_with_its_reason_and_the_servers_message(outcomes, reason):
    failure = failure_of(outcomes)
    failed = next(each for each in outcomes if isinstance(each, Rejected | Unknown))
    assert (failure.reason, failure.message, failure.status) == (reason, failed.message, "True")
    assert failure.last_transition_time == failure.last_probe_time == NOW


def test_p17_a_failure_that_stays_keeps_its_date_and_takes_the_new_message():
    failure = failure_of([Rejected(CREATE, Forbidden("exceeded quota: 4 of 4", code=403))], held=FAILURE)
    assert failure == replace(condition(FAILURE), message="exceeded quota: 4 of 4")


GOES = {
    "all done": [Done(CREATE), AlreadyThere(CREATE), Done(DELETE), Done(REBASE)],
    "what was to go is gone": [Missing(DELETE), Missing(LET_GO)],
    "nothing to do": [],
}


@pytest.mark.parametrize("outcomes", GOES.values(), ids=GOES)
def test_p17_a_failure_goes_when_a_pass_succeeds(outcomes):
    assert failure_of(outcomes, held=FAILURE) is None


STAYS = {
    "unsettled": ([], {"settled": False}),
    "paused": ([], {"paused": True}),
    "being deleted": ([], {"deleting": True}),
    "invalid": ([], {"selector": {}}),
    "cut short": ([Done(CREATE), Skipped(CREATE)], {}),
    "put off": ([Postponed(CREATE)], {}),
    "a lost connection": ([Unknown(CREATE, LOST)], {}),
    "a refused write of our own": ([Rejected(RECORD, QUOTA)], {}),
}


@pytest.mark.parametrize(("outcomes", "changes"), STAYS.values(), ids=STAYS)
def test_p17_a_failure_stays_while_nothing_was_proved(outcomes, changes):
    assert failure_of(outcomes, held=FAILURE, **changes) == condition(FAILURE)


@pytest.mark.parametrize(("outcomes", "changes"), [STAYS["a lost connection"], STAYS["a refused write of our own"]])
def test_p17_no_failure_comes_of_what_is_none_of_the_pools(outcomes, changes):
    assert failure_of(outcomes, **changes) is None


def word_of(owner, *machines, **circumstances) -> str:
    return status_of(owner, *machines, **circumstances).printable_status


HEALING = {"startUpFailureThreshold": 3}
HEALED_LATELY = {HEALED: json.dumps({"0": ["another", 1, seconds_ago(60).isoformat()]})}
HEALED_LONG_AGO = {HEALED: json.dumps({"0": ["another", 1, seconds_ago(600).isoformat()]})}
STARTING = {"ready": False, "printable": "Starting"}

WORDS = {
    "all are there and ready": ({}, [{}, {}, {}], "Running"),
    "nobody is wanted": ({"replicas": 0}, [], "Stopped"),
    "its users stopped all": ({}, [{"spec": vm_spec(run_strategy="Halted"), "ready": False}] * 3, "Stopped"),
    "its users stopped some": ({}, [{}, {}, {"spec": vm_spec(run_strategy="Halted"), "ready": False}], "Running"),
    "some are to be made": ({}, [{}, {}], "Scaling"),
    "some have just been made": ({}, [{}, {}, STARTING], "Scaling"),
    "nobody has looked at some": ({}, [{}, {}, {"ready": None, "printable": None}], "Scaling"),
    "one starts anew": ({}, [{}, {}, {"ready": False, "printable": "Stopped"}], "Scaling"),
    "one is deleted": ({}, [{}, {}, {"deleting": True}], "Scaling"),
    "too many": ({"replicas": 2}, [{}, {}, {}], "Scaling"),
    "paused": ({"paused": True}, [{}], "Paused"),
    "paused and invalid": ({"paused": True, "selector": {}}, [{}], "Paused"),
    "invalid": ({"selector": {}}, [{}, {}, {}], "Degraded"),
    "one runs and is not ready": ({}, [{}, {}, {"ready": False}], "Degraded"),
    "one starts and another is broken": ({}, [{}, STARTING, {"ready": False, "printable": "ErrImagePull"}], "Degraded"),
    "one that was healed is on its way": (
        {"autohealing": HEALING, "annotations": HEALED_LATELY},
        [STARTING, {}, {}],
        "Healing",
    ),
    "one that was healed is gone": ({"autohealing": HEALING, "annotations": HEALED_LATELY}, [], "Healing"),
    "one that was healed is back": ({"autohealing": HEALING, "annotations": HEALED_LATELY}, [{}, {}, {}], "Running"),
    "one that was healed does not come back": (
        {"autohealing": HEALING, "annotations": HEALED_LONG_AGO},
        [{"ready": False, "printable": "ErrImagePull"}, {}, {}],
        "Degraded",
    ),
    "it heals no longer": ({"annotations": HEALED_LATELY}, [STARTING, {}, {}], "Scaling"),
}


@pytest.mark.parametrize(("fields", "machines", "word"), WORDS.values(), ids=WORDS)
def test_the_pool_in_one_word(fields, machines, word):
    owner = pool(**fields)
    made = [each for number, changes in enumerate(machines) for each in vms(owner, number, **changes)]
    if word == "Healing" and not made:
        made = list(vms(owner, 1, 2))
    assert word_of(owner, *made) == word


@pytest.mark.parametrize("state", sorted(BROKEN_STATES))
def test_a_pool_with_a_vm_that_cannot_come_up_is_degraded(state):
    owner = pool()
    assert word_of(owner, *vms(owner, 0, 1), *vms(owner, 2, ready=False, printable=state)) == "Degraded"


def test_a_pool_whose_writes_fail_is_degraded():
    assert word_of(pool(), outcomes=[Rejected(CREATE, QUOTA)]) == "Degraded"


@pytest.mark.parametrize(
    ("strategy", "word"), [("proactive", "Updating"), ("opportunistic", "Updating"), ("unmanaged", "Running")]
)
def test_a_pool_updates_until_everybody_is_on_its_template_if_it_asks_for_that(strategy, word):
    owner, kept = updated(replicas=2, updateStrategy={strategy: {}})
    assert word_of(owner, *vms(owner, 0), *vms(owner, 1, revision="web-2"), revisions=kept) == word


def words_of(simulation, passes=30) -> list[str]:
    """What the pool says of itself from here on, each word once in a row."""
    words: list[str] = []
    for _ in range(passes):
        simulation.run_pass()
        words += [word for word in (simulation.pool["status"]["printableStatus"],) if words[-1:] != [word]]
        simulation.live_on()
    return words


def test_the_words_along_the_life_of_a_pool():
    simulation = PoolSimulation(pool(replicas=3, maxUnavailable=1, autohealing={"minFailingToStartDuration": "20s"}))
    assert words_of(simulation) == ["Scaling", "Running"]
    simulation.change(virtualMachineTemplate={"metadata": {"labels": dict(LABELS)}, "spec": vm_spec(image="v2")})
    assert words_of(simulation) == ["Updating", "Running"]
    break_one(simulation, "web-1")
    assert words_of(simulation) == ["Running", "Degraded", "Healing", "Running"]
    simulation.change(paused=True)
    assert words_of(simulation, 2) == ["Paused"]
    simulation.change(paused=False)
    assert words_of(simulation, 2) == ["Running"]
    simulation.change(replicas=1)
    assert words_of(simulation) == ["Scaling", "Running"]
    simulation.change(replicas=0)
    assert words_of(simulation) == ["Scaling", "Stopped"]
