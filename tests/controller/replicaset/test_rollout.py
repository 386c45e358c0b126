"""R14: outdated VMIs are replaced step by step, and a VMI that has lost its template hash has the hash of its set."""

import msgspec
import pytest
from msgspec.structs import replace

from controller.apimachinery.conditions import time_text
from controller.kubevirt import annotations as names
from controller.kubevirt.resources import VMIS
from controller.replicaset.back_off import annotation_of
from controller.replicaset.intent import parse_intent
from controller.replicaset.own_hashes import with_own_hashes
from controller.replicaset.plan import plan
from controller.replicaset.status import next_status
from controller.runtime.actions import Create
from controller.runtime.execute.refusals import FIRST_WAIT_S, LONGEST_WAIT_S
from tests.builders import LABELS, history, limits_of, replicaset, revision, seconds_ago, snapshot, vmi
from tests.controller.replicaset.simulation import ReplicaSetSimulation
from tests.plans import deleted
from tests.strategies import template_hash_of


def rolling(allowance="maxUnavailable=25%", *, replicas=8, deadline=None, annotations=None, **changes):
    annotations = {names.ROLLING_UPDATE: allowance, **(annotations or {})}
    if deadline is not None:
        annotations[names.PROGRESS_DEADLINE] = deadline
    return replicaset(replicas=replicas, annotations=annotations, **changes)


OLD = {**LABELS, names.TEMPLATE_HASH: "older"}


def outdated(owner, number, **changes):
    return [vmi(f"old-{n}", owner=owner, labels=OLD, **changes) for n in range(number)]


def updated(owner, number, **changes):
    labels = {**LABELS, names.TEMPLATE_HASH: template_hash_of(owner)}
    return [vmi(f"new-{n}", owner=owner, labels=labels, **changes) for n in range(number)]


def deletes(owner, *vmis, **circumstances) -> list[str]:
    return deleted(plan(snapshot(owner, vmis, **circumstances)))


@pytest.mark.parametrize("allowance", ["", "25%", "maxUnavailable=", "maxUnavailable=0", "maxUnavailable=101%", "x=1"])
def test_r14_with_a_malformed_limit_nothing_is_replaced_and_one_notice_reports_it(allowance):
    owner = rolling(allowance)
    todo = plan(snapshot(owner, outdated(owner, 8)))
    assert todo.actions == ()
    (notice,) = todo.notices
    assert (notice.reason, notice.warning) == ("InvalidAnnotation", True)
    assert f'{names.ROLLING_UPDATE} is "{allowance}"' in notice.message


@pytest.mark.parametrize(("most", "number"), [(1, 0), (2, 1)])
def test_r2_r14_a_vmi_that_waits_for_its_release_is_unavailable(most, number):
    owner = rolling(f"maxUnavailable={most}", replicas=4)
    waits = vmi("waits", owner=owner, labels={"app": "other"}, age_s=10)
    assert len(deletes(owner, *outdated(owner, 3), waits)) == number


def test_r14_a_vmi_without_a_hash_belongs_to_the_template_of_the_takeover():
    owner = rolling("maxUnavailable=1", replicas=2)
    members = [vmi(name, owner=owner, labels=LABELS) for name in ("a", "b")]
    (note,) = plan(snapshot(owner, members)).actions
    noted = msgspec.json.decode(note.body)["metadata"]["annotations"]
    assert noted == {names.ADOPTED_TEMPLATE: template_hash_of(owner)}
    assert plan(snapshot(rolling("maxUnavailable=1", replicas=2, annotations=noted), members)).actions == ()
    changed = rolling("maxUnavailable=1", replicas=2, annotations=noted, spec=b'{"domain":{"devices":{"rng":{}}}}')
    assert deletes(changed, *updated(changed, 1), vmi("unlabelled", owner=changed, labels=LABELS)) == ["unlabelled"]


WAITS = {
    "unready for a while": ([{"ready_for_s": 100}], 500),
    "the VMI that is unready for longest decides": ([{"ready_for_s": 10}, {"ready_for_s": 590}], 10),
    "a time in the future does not postpone the pass": ([{"ready_for_s": -9e6}], 600),
    "before it runs": ([{"ready_for_s": 3, "age_s": 500, "phase": "Scheduling", "entered_s": {}}], 100),
    "a VMI became ready": ([{"age_s": 900, "ready_for_s": 900}, {"ready": True, "ready_for_s": 100}], 500),
}


@pytest.mark.parametrize(("states", "wait_s"), WAITS.values(), ids=WAITS)
def test_r14_a_waiting_rollout_gives_a_reason_and_is_requeued_at_its_deadline(states, wait_s):
    owner = rolling("maxUnavailable=1", replicas=len(states) + 1)
    labels = {**LABELS, names.TEMPLATE_HASH: template_hash_of(owner)}
    new = [vmi(f"new-{n}", owner=owner, labels=labels, **{"ready": False, **each}) for n, each in enumerate(states)]
    todo = plan(snapshot(owner, [*outdated(owner, 1), *new]))
    assert (todo.actions, todo.notices, todo.requeue_after_s) == ((), (), wait_s)
    assert todo.held == "rollout: 1 outdated VMI waits until more are ready"


@pytest.mark.parametrize(("deadline", "waits_s"), [(None, 600), ("60", 60)])
def test_r14_a_template_whose_vmis_stay_unready_is_reported_once(deadline, waits_s):
    owner = rolling("maxUnavailable=1", replicas=2, deadline=deadline)
    todo = plan(snapshot(owner, [*outdated(owner, 1), *updated(owner, 1, ready=False, ready_for_s=waits_s)]))
    [notice] = todo.notices
    assert (notice.reason, notice.warning) == ("RolloutStalled", True)
    assert notice.once == f"stalled {template_hash_of(owner)}"
    assert "new-0" in notice.message
    assert todo.requeue_after_s is None


def test_r14_a_template_whose_vmis_are_replaced_stalls_although_each_vmi_is_young():
    owner = rolling("maxUnavailable=1", replicas=2)
    record = {names.EARLY_FAILURES: annotation_of(3, seconds_ago(601), seconds_ago(2))}
    young = {"ready": False, "age_s": 2, "ready_for_s": 1, "phase": "Scheduling", "entered_s": {}}
    trying = plan(snapshot(owner, [*outdated(owner, 1), *updated(owner, 1, annotations=record, **young)]))
    assert [notice.reason for notice in trying.notices] == ["RolloutStalled"]
    failed = updated(owner, 1, annotations=record, **{**young, "phase": "Failed", "entered_s": {"Failed": 1}})
    waiting = plan(snapshot(owner, [*outdated(owner, 1), *failed]))
    assert sorted(notice.reason for notice in waiting.notices) == ["BackOff", "RolloutStalled"]
    assert waiting.actions == ()


def test_r14_a_vmi_that_replaces_an_early_failure_counts_as_ready_after_ten_minutes():
    owner = rolling("maxUnavailable=1", replicas=2)
    record = {names.EARLY_FAILURES: annotation_of(1, seconds_ago(599), seconds_ago(598))}
    young = updated(owner, 1, annotations=record, age_s=598, ready_for_s=590)
    todo = plan(snapshot(owner, [*outdated(owner, 1), *young]))
    assert (todo.actions, todo.requeue_after_s) == ((), 1)
    proven = updated(owner, 1, annotations=record, age_s=700, ready_for_s=600)
    assert deletes(owner, *outdated(owner, 1), *proven) == ["old-0"]


ONE_MORE = "maxSurge=1,maxUnavailable=0"


def surging(limits: str = ONE_MORE, *, replicas: int = 3, **annotations: str):
    return replicaset(replicas=replicas, annotations={names.ROLLING_UPDATE: limits, **annotations})


def planned(owner, *vmis) -> tuple[int, list[str]]:
    """The number of creates, and the names of the deleted VMIs."""
    todo = plan(snapshot(owner, vmis))
    return sum(isinstance(each, Create) for each in todo.actions), deleted(todo)


@pytest.mark.parametrize(
    ("text", "replicas", "limits"),
    [
        ("maxUnavailable=50%", 3, (1, 0)),
        ("maxSurge=2,maxUnavailable=0", 3, (0, 2)),
        ("maxUnavailable=1,maxSurge=1", 3, (1, 1)),
        (" maxSurge = 25% , maxUnavailable = 25% ", 3, (0, 1)),
        ("maxSurge=25%,maxUnavailable=25%", 10, (2, 3)),
        ("maxSurge=0%,maxUnavailable=10%", 3, (1, 0)),
        ("maxSurge=50%,maxUnavailable=0%", 0, (0, 0)),
    ],
)
def test_r14_percentages_of_the_surge_round_up_and_those_of_unavailable_vmis_round_down(text, replicas, limits):
    rollout = limits_of(surging(text), replicas)
    assert (rollout.max_unavailable, rollout.max_surge) == limits


@pytest.mark.parametrize(
    ("limits", "count", "actions"),
    [
        (ONE_MORE, {"old": 3}, (1, [])),
        ("maxSurge=2,maxUnavailable=0", {"old": 3}, (2, [])),
        ("maxSurge=9,maxUnavailable=0", {"old": 3}, (3, [])),
        ("maxSurge=1,maxUnavailable=1", {"old": 3}, (1, ["old-0"])),
        (ONE_MORE, {"old": 3, "new": 1}, (0, ["old-0"])),
        (ONE_MORE, {"old": 2, "new": 1}, (1, [])),
        (ONE_MORE, {"old": 1, "new": 3}, (0, ["old-0"])),
        (ONE_MORE, {"new": 3}, (0, [])),
        (ONE_MORE, {"old": 2}, (2, [])),
    ],
)
def test_r14_a_new_vmi_comes_before_an_old_one_goes(limits, count, actions):
    owner = surging(limits)
    assert planned(owner, *outdated(owner, count.get("old", 0)), *updated(owner, count.get("new", 0))) == actions


def test_r14_an_old_vmi_stays_until_the_new_one_is_ready_but_not_if_it_is_itself_unready():
    owner = surging()
    assert planned(owner, *outdated(owner, 3), *updated(owner, 1, ready=False)) == (0, [])
    broken = vmi("broken", owner=owner, labels=OLD, ready=False)
    assert planned(owner, *outdated(owner, 2), broken, *updated(owner, 1, ready=False)) == (0, ["broken"])


def test_r14_p24_a_vmi_that_stays_gets_no_surge_and_one_that_became_busy_keeps_it():
    owner, busy = surging(), {names.BUSY_UNTIL: "2999-01-01T00:00:00Z"}
    for annotations in (busy, {names.PROTECT: "true"}):
        assert planned(owner, *outdated(owner, 3, annotations=annotations)) == (0, [])
    assert planned(owner, *outdated(owner, 1, annotations=busy), *updated(owner, 3)) == (0, [])


def test_r14_the_limit_of_replicas_leaves_no_room_for_a_surge_and_the_set_says_so():
    owner = surging()
    full = snapshot(owner, outdated(owner, 3))
    todo = plan(replace(full, max_replicas=3))
    message = "3 outdated VMIs are not replaced: --max-replicas 3 leaves no room for maxSurge"
    assert todo.actions == ()
    assert message in todo.held
    assert [(each.reason, each.message) for each in todo.notices] == [("UpdateHeld", message)]
    assert [type(each) for each in plan(replace(full, max_replicas=4)).actions] == [Create]


@pytest.mark.parametrize(("limits", "left"), [(ONE_MORE, 3), ("maxSurge=1,maxUnavailable=1", 0)])
def test_r14_while_a_quota_refuses_the_surge_only_max_unavailable_goes_on(limits, left):
    owner = surging(limits)
    simulation = ReplicaSetSimulation.of(owner, outdated(owner, 3))
    simulation.server.quota = {VMIS: 3}
    for _ in range(20):
        simulation.run_pass()
        simulation.live_on()
        simulation.advance(FIRST_WAIT_S)
    assert sum(each.metadata.name.startswith("old") for each in simulation.active) == left
    if left:
        assert "exceeded quota" in simulation.owner.status.problem
        assert "FailedCreate" in simulation.reasons
    simulation.server.quota = {VMIS: 4}
    simulation.advance(LONGEST_WAIT_S)
    for _ in range(20):
        simulation.run_pass()
        simulation.live_on()
    assert [each.metadata.labels[names.TEMPLATE_HASH] for each in simulation.active] == [template_hash_of(owner)] * 3


def test_r14_p25_a_set_that_keeps_its_running_vmis_creates_no_surge_beside_a_surplus():
    owner = surging(**{names.SCALE_IN: "finished"})
    assert planned(owner, *outdated(owner, 5))[0] == 0


ROLLING = {"vmherd.dev/rolling-update": "maxUnavailable=1"}
EARLIER = replicaset(replicas=1, generation=1, spec=b'{"domain":{},"hostname":"old"}')
NEW = replicaset(replicas=1, generation=2, annotations=ROLLING)
OLD_HASH, NEW_HASH = map(template_hash_of, (EARLIER, NEW))
BASE = parse_intent(NEW).template.base
OWN = f"{BASE}bcdfg"
BACK = f"{NEW_HASH} to testreplicaset-{OLD_HASH}"


def seen(hashed, *, name=OWN, age_s=50, rolled_out_s=None, annotations=ROLLING, revisions=(EARLIER, NEW), twin=False):
    """A set with revisions of 200 and of 100 seconds, and with one VMI, or two."""
    notes = {names.ROLLED_OUT: time_text(seconds_ago(rolled_out_s))} if rolled_out_s is not None else None
    stored = [
        replace(made, metadata=replace(made.metadata, creation_timestamp=seconds_ago(age), annotations=notes))
        for made, age in zip(map(revision, revisions), (200, 100), strict=False)
    ]
    owner = replace(NEW, metadata=replace(NEW.metadata, annotations=annotations))
    labels = {**LABELS, **({names.TEMPLATE_HASH: hashed} if hashed is not None else {})}
    vmis = [vmi(name, owner=owner, labels=labels, age_s=age_s)]
    vmis += [vmi(f"{BASE}zzzzz", owner=owner, labels=labels, age_s=age_s + 100)] if twin else []
    return with_own_hashes(snapshot(owner, vmis, history=history(*stored)))


@pytest.mark.parametrize(
    ("hashed", "circumstances", "counts"),
    [
        ("bogus", {}, True),
        ("bogus", {"name": f"{BASE}bcdf"}, False),
        ("bogus", {"name": "made-by-hand"}, False),
        ("bogus", {"age_s": 150}, False),
        ("bogus", {"rolled_out_s": 40}, True),
        ("bogus", {"revisions": (EARLIER,)}, False),
        (NEW_HASH, {"revisions": (EARLIER,)}, True),
        (OLD_HASH, {}, False),
        (NEW_HASH, {}, True),
        (None, {"annotations": {**ROLLING, "vmherd.dev/adopted-template": OLD_HASH}}, True),
        (None, {"age_s": 150}, False),
        (None, {"age_s": 250}, True),
    ],
)
def test_r14_a_vmi_younger_than_the_rollout_with_a_name_of_the_set_has_the_present_template(
    hashed, circumstances, counts
):
    found = seen(hashed, **circumstances)
    assert next_status(found, ()).updated_replicas == int(counts)
    assert ("delete" in {type(each).__name__.lower() for each in plan(found).actions}) is not counts


@pytest.mark.parametrize(("note", "counts"), [(f" at {time_text(seconds_ago(60))}", True), ("", False)])
def test_r14_p29_after_a_return_a_younger_vmi_has_the_earlier_template(note, counts):
    found = seen("bogus", annotations={**ROLLING, names.ROLLBACK: "stalled", names.ROLLED_BACK: BACK + note})
    assert [each.metadata.labels[names.TEMPLATE_HASH] for each in found.members] == [OLD_HASH if counts else "bogus"]


def test_r14_a_template_that_was_rolled_out_again_is_that_of_the_vmis_after_it():
    ages = {"bcdfg": 150, "ghjkl": 90, "mnpqr": 30}
    owner = replace(EARLIER, metadata=replace(NEW.metadata, annotations=ROLLING, generation=3))
    again = {names.ROLLED_OUT: time_text(seconds_ago(60))}
    stored = [
        replace(made, metadata=replace(made.metadata, creation_timestamp=seconds_ago(age), annotations=notes))
        for made, age, notes in ((revision(EARLIER), 200, again), (revision(NEW), 100, None))
    ]
    vmis = [vmi(BASE + end, owner=owner, labels=LABELS, age_s=age) for end, age in ages.items()]
    found = with_own_hashes(snapshot(owner, vmis, history=history(*stored)))
    hashes = {each.metadata.name[-5:]: each.metadata.labels[names.TEMPLATE_HASH] for each in found.members}
    assert hashes == {"bcdfg": OLD_HASH, "ghjkl": NEW_HASH, "mnpqr": OLD_HASH}


def test_r14_before_a_new_template_has_its_revision_vmis_without_a_hash_keep_the_earlier_one():
    found = seen(None, revisions=(EARLIER,))
    assert [each.metadata.labels[names.TEMPLATE_HASH] for each in found.members] == [OLD_HASH]
    assert "vmherd.dev/adopted-template" not in str([getattr(each, "body", "") for each in plan(found).actions])


def test_r14_an_older_vmi_with_the_same_label_stays_outdated():
    found = seen("bogus", twin=True)
    hashes = {each.metadata.name: each.metadata.labels[names.TEMPLATE_HASH] for each in found.members}
    assert hashes == {OWN: NEW_HASH, f"{BASE}zzzzz": OLD_HASH}
