"""P15: VMs that fail to start, or run and are never ready, are replaced, and healing is recorded."""

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kubevirt.annotations import HEALED, MAX_UNHEALTHY, PROTECT, REPLACE_UNREADY_AFTER
from controller.kubevirt.vms import BROKEN_STATES
from controller.runtime.actions import Delete, Plan
from informers.objects import PatchType
from tests.builders import NOW
from tests.pool_builders import POOLS, pool, vm_spec, vmi, vms
from tests.pool_scenes import (
    FAILING,
    STUCK,
    annotated,
    announce,
    announced,
    announced_for,
    at,
    entry,
    heal,
    healed,
    healing_pool,
    record_of,
)
from tests.strategies import json_values

UUID = "0123abcd-0123-4567-89ab-0123456789ab"


@pytest.mark.parametrize(("failures", "expected"), [(None, []), (0, []), (2, []), (3, ["web-0"]), (9, ["web-0"])])
def test_p15_a_vm_is_healed_if_its_start_failures_reach_the_threshold(failures, expected):
    owner = healing_pool()
    machines = (*vms(owner, 0, ready=False, failures=failures), *vms(owner, 1, 2))
    assert healed(heal(owner, *machines)) == expected


@pytest.mark.parametrize("state", sorted(BROKEN_STATES))
def test_p15_a_vm_in_a_broken_state_is_healed_after_the_minimum_failing_time(state):
    owner = healing_pool()
    ready = vms(owner, 1, 2)
    early = heal(owner, *vms(owner, 0, ready=False, printable=state, ready_for_s=290), *ready)
    assert (early.actions, early.requeue_after_s, early.notices) == ((), 10, ())
    late = heal(owner, *vms(owner, 0, ready=False, printable=state, ready_for_s=300), *ready)
    assert healed(late) == ["web-0"]
    assert late.requeue_after_s is None
    [delete] = [each for each in late.actions if isinstance(each, Delete)]
    assert delete.why == (
        f"healing: {state}, and it has not been ready for 300 s, the limit is 300 s; "
        "it failed to start 0 times in a row, the limit is 3"
    )


def test_p15_a_wait_names_the_next_healing_and_its_time():
    owner = healing_pool(healed={0: entry("earlier", 2, 5), 1: entry("earlier", 1, 5)})
    machines = (*vms(owner, 0, **FAILING), *vms(owner, *range(2, 6)))
    [wait] = announce(owner, *machines).waits
    assert wait.text == f"healing: web-0 fails, and is replaced at {at(-15)} (2 healings before)"
    assert (wait.names, wait.until) == (("web-0",), NOW + timedelta(seconds=15))
    sooner = vms(owner, 1, **FAILING)
    [wait] = announce(owner, *machines, *sooner).waits
    assert wait.text == f"healing: web-1 fails, and is replaced at {at(-5)} (1 healing before), and 1 more later"
    protected = vms(owner, 1, **FAILING, annotations={PROTECT: "true"})
    assert announce(owner, *machines, *protected).waits[0].names == ("web-0",)
    blocked = annotated(owner, MAX_UNHEALTHY, 1)
    assert announce(blocked, *machines, *sooner).waits == ()


OTHER_STATES = ("Starting", "Provisioning", "Stopped", "Running", "Unschedulable", None)
NOT_FAILING = {
    "ready": {"ready": True, "failures": 9, "printable": "CrashLoopBackOff"},
    "halted by its user": {**FAILING, "spec": vm_spec(run_strategy="Halted")},
    "deleted by its user": {**FAILING, "deleting": True},
    **{f"in the state {state}": {"ready": False, "printable": state, "ready_for_s": 9000} for state in OTHER_STATES},
}


@pytest.mark.parametrize("changes", NOT_FAILING.values(), ids=NOT_FAILING)
def test_p15_a_vm_that_does_not_fail_is_not_healed(changes):
    owner = healing_pool()
    assert heal(owner, *vms(owner, 0, **changes), *vms(owner, 1, 2)) == Plan()


PATIENT = {"autohealing": {"minFailingToStartDuration": "876000h"}}
IN_9999 = NOW - NOW.replace(year=9999, month=12, day=31)
DUE = {
    "the first failing VM": ([{**STUCK, "ready_for_s": 100}, {**STUCK, "ready_for_s": 250}], {}, [], 50),
    "a clock ahead of ours": ([{**STUCK, "ready_for_s": -7200}], {}, [], 300),
    "a date in the year 9999": ([{**STUCK, "ready_for_s": IN_9999.total_seconds()}], PATIENT, [], 876000 * 3600),
    "no Ready condition": ([{"ready": None, "failures": 3}], {}, ["web-0"], None),
    "a ready VM without a VMI": ([{"failures": 9, "vmi": None}], {}, [], None),
    "a pause of another ordinal": ([FAILING, FAILING], {"healed": {0: entry(count=9)}}, ["web-1"], 240),
    "a record from the near future": ([FAILING], {"healed": {0: entry(count=1, seconds=-30)}}, [], 40),
}


@pytest.mark.parametrize(("failing", "fields", "expected", "wake_s"), DUE.values(), ids=DUE)
def test_p15_which_vms_are_due_and_when_the_next_vm_is_due(failing, fields, expected, wake_s):
    owner = healing_pool(**fields)
    more = {"vmis": []} if "vmi" in failing[0] else {}
    changes = [{name: value for name, value in each.items() if name != "vmi"} for each in failing]
    machines = [each for ordinal, of_vm in enumerate(changes) for each in vms(owner, ordinal, **of_vm)]
    todo = heal(owner, *machines, *vms(owner, *range(2, 10)), **more)
    assert (healed(todo), todo.requeue_after_s) == (expected, wake_s)


def test_p15_the_record_is_written_three_seconds_before_the_vms_are_deleted():
    owner = healing_pool()
    machines = (*vms(owner, 0, 1, **FAILING), *vms(owner, 2, 3))
    first = announce(owner, *machines)
    assert first.held == "healing: failed virtual machines are replaced in a few seconds (2)"
    assert first.requeue_after_s == 3
    [patch] = first.actions
    assert (patch.resource, patch.key, patch.type) == (POOLS, owner.metadata.key, PatchType.MERGE)
    body = json.loads(patch.body)
    written = json.loads(body["metadata"].pop("annotations")[HEALED])
    assert body == {"metadata": {"uid": "uid-of-the-pool"}}
    assert written == {"0": ["uid-web-0", 1, "2026-08-01T12:00:00Z"], "1": ["uid-web-1", 1, "2026-08-01T12:00:00Z"]}
    early = announce(annotated(owner, HEALED, {**written, "1": ["uid-web-1", 1, at(2)]}), *machines)
    assert (early.actions, early.requeue_after_s) == ((), 1)
    second = announce(announced(owner, written), *machines)
    assert [(type(each), each.key.name) for each in second.actions] == [(Delete, "web-0"), (Delete, "web-1")]
    assert (second.held, second.requeue_after_s) == ("", None)


def test_p15_a_vm_that_is_ready_again_after_the_announcement_is_not_deleted():
    owner = healing_pool()
    failing, others = vms(owner, 0, **FAILING), vms(owner, 1, 2)
    owner = announced_for(owner, *failing)
    assert announce(owner, *vms(owner, 0, failures=3), *others) == Plan()
    assert announce(owner, *failing, *others, vmis=[vmi(failing[0])]) == Plan()


def test_p15_an_announcement_lasts_three_seconds_if_the_clock_has_fractions_of_seconds():
    owner = healing_pool()
    todo = announce(owner, *vms(owner, 0, **FAILING), *vms(owner, 1, 2), now=NOW + timedelta(milliseconds=300))
    assert record_of(todo) == {"0": ["uid-web-0", 1, at(-1)]}
    assert todo.requeue_after_s == pytest.approx(3.7)


@pytest.mark.parametrize(("count", "pause"), [*enumerate([10, 20, 40, 80, 160, 300, 300, 300], start=1)])
def test_p15_the_pause_before_the_next_healing_of_an_ordinal_doubles(count, pause):
    for lasting, expected in ((pause - 1, []), (pause, ["web-0"])):
        owner = healing_pool(healed={0: entry(count=count, seconds=lasting)})
        todo = heal(owner, *vms(owner, 0, **FAILING), *vms(owner, *range(1, 10)))
        assert healed(todo) == expected
        assert todo.requeue_after_s == (None if expected else 1)


UNREADABLE = {
    "no JSON": "yesterday",
    "a date without a zone": '{"0": ["a", 1, "2026-08-01T11:59:59"]}',
    "a date in the future": '{"0": ["a", 1, "9999-12-31T23:59:59Z"]}',
    "the first possible date": '{"0": ["a", 1, "0001-01-01T00:00:00+14:00"]}',
    "a negative count": '{"0": ["a", -3, "2026-08-01T11:59:59Z"]}',
    "a count with 5000 digits": '{"0": ["a", %s, "2026-08-01T11:59:59Z"]}' % ("9" * 5000),
    "nested too deeply": '{"0": ["a", 1, "2026-08-01T11:59:59Z", ' + "[" * 100_000,
    "a negative ordinal": '{"-1": ["a", 1, "2026-08-01T11:59:59Z"]}',
}


FIRST = ["uid-web-0", 1, at(0)]
RECORDS = {
    "the count increments and other records stay": (
        healing_pool(healed={0: entry(count=2), 5: entry("five", 4, 120)}),
        {"0": ["uid-web-0", 3, at(0)], "5": ["five", 4, at(120)]},
    ),
    # A record is kept for half an hour plus twice the minimum failing time.
    "old records are removed": (
        healing_pool(healed={0: entry(count=9, seconds=2400), 5: entry(seconds=2400), 6: entry(seconds=2399)}),
        {"0": FIRST, "6": ["another", 1, at(2399)]},
    ),
    **{name: (healing_pool(annotations={HEALED: text}), {"0": FIRST}) for name, text in UNREADABLE.items()},
}


@pytest.mark.parametrize(("owner", "records"), RECORDS.values(), ids=RECORDS)
def test_p15_the_records_that_a_healing_writes(owner, records):
    assert record_of(announce(owner, *vms(owner, 0, **FAILING), *vms(owner, *range(1, 10)))) == records


@given(st.text() | json_values.map(json.dumps) | st.dictionaries(st.integers().map(str), json_values).map(json.dumps))
def test_every_annotation_value_gives_a_plan(text):
    owner = healing_pool(annotations={HEALED: text, MAX_UNHEALTHY: text})
    assert len(healed(heal(owner, *vms(owner, 0, **FAILING), *vms(owner, *range(1, 10))))) <= 1


def test_the_annotation_stays_below_the_size_limit_of_the_server():
    """The oldest records are removed, because all annotations of an object together may have at most 256 KiB."""
    records = {number: entry(UUID, 5, 2000 - number / 2) for number in range(1, 2000)}
    owner = healing_pool(replicas=3000, healed=records, annotations={MAX_UNHEALTHY: "100%"})
    written = record_of(announce(owner, *vms(owner, 0, **FAILING, uid=UUID), *vms(owner, *range(1, 3000))))
    assert len(written) == 1000
    assert written["0"] == [UUID, 1, at(0)]
    assert "1999" in written
    assert "1000" not in written
    assert len(json.dumps(written)) < 128 * 1024


def replacing_pool(*, limit="60", **changes):
    """A pool of ten VMs without autohealing."""
    return pool(**{"replicas": 10, "annotations": {REPLACE_UNREADY_AFTER: limit}, **changes})


def unready(owner, *ordinals, seconds, phase="Running"):
    """VMs that have been unready for `seconds` seconds, and their VMIs."""
    machines = vms(owner, *ordinals, ready=False, printable="Running", ready_for_s=seconds)
    return machines, [vmi(each, ready=False, phase=phase, ready_for_s=seconds) for each in machines]


def heal_among(owner, machines, vmis, *others):
    others = vms(owner, *others)
    return heal(owner, *machines, *others, vmis=[*vmis, *(vmi(each) for each in others)])


def test_p15_a_running_vm_is_replaced_when_it_has_not_been_ready_for_the_limit():
    owner = replacing_pool()
    early = heal_among(owner, *unready(owner, 0, seconds=59), 1, 2)
    assert (early.actions, early.requeue_after_s, early.notices) == ((), 1, ())
    todo = heal_among(owner, *unready(owner, 0, seconds=60), 1, 2)
    [delete] = [each for each in todo.actions if isinstance(each, Delete)]
    assert delete.key.name == "web-0"
    assert delete.why == (
        "healing: it runs, but has not been ready for 60 s; vmherd.dev/replace-unready-after-seconds is 60"
    )


@pytest.mark.parametrize(("later_s", "noted"), [(58, []), (57, []), (56, ["0"])])
def test_p15_a_healing_is_not_announced_if_too_many_vms_fail_before_its_delete(later_s, noted):
    owner = replacing_pool(replicas=4)
    first, running_first = unready(owner, 0, seconds=60)
    later, running_later = unready(owner, 1, 2, seconds=later_s)
    seen = {"vmis": [*running_first, *running_later, *map(vmi, vms(owner, 3))]}
    todo = announce(owner, *first, *later, *vms(owner, 3), **seen)
    assert list(record_of(todo) if todo.actions else ()) == noted
    assert ("healing is blocked" in todo.held) is not bool(noted)


@pytest.mark.parametrize(("unready_s", "noted", "next_s"), [(40, [], 17), (57, ["0", "1"], 3)])
def test_p15_a_pass_is_asked_for_when_a_recreated_vm_fails_and_its_turn_ends(unready_s, noted, next_s):
    owner = annotated(replacing_pool(maxUnavailable=1), HEALED, {0: entry("earlier", 1, 60)})
    (recreated, vmis_0), (due, vmis_1) = unready(owner, 0, seconds=unready_s), unready(owner, 1, seconds=70)
    others = vms(owner, *range(2, 10))
    todo = announce(owner, *recreated, *due, *others, vmis=[*vmis_0, *vmis_1, *map(vmi, others)])
    assert (list(record_of(todo) if todo.actions else ()), todo.requeue_after_s) == (noted, next_s)


def test_p15_no_healing_is_foretold_if_too_many_vms_fail_by_then():
    owner = replacing_pool(replicas=4)
    machines, running_vmis = unready(owner, 0, 1, 2, seconds=30)
    foretold = announce(owner, *machines, *vms(owner, 3), vmis=[*running_vmis, *map(vmi, vms(owner, 3))])
    assert foretold.waits == ()


@pytest.mark.parametrize("phase", ["Pending", "Scheduling", "Scheduled", "Failed", None, "no VMI", "no annotation"])
def test_p15_a_vm_that_does_not_run_yet_or_has_no_limit_is_not_replaced(phase):
    owner = healing_pool() if phase == "no annotation" else replacing_pool()
    machines, running_vmis = unready(owner, 0, seconds=9999, phase="Running" if phase == "no annotation" else phase)
    assert heal_among(owner, machines, () if phase == "no VMI" else running_vmis, 1, 2) == Plan()


@pytest.mark.parametrize("value", ["0", "-5", "", "10m", "1.5", "2147483648"])
def test_p15_an_invalid_limit_counts_as_no_annotation(value):
    owner = replacing_pool(limit=value)
    todo = heal_among(owner, *unready(owner, 0, seconds=9999), 1, 2)
    assert todo.actions == ()
    healing = healing_pool(annotations={REPLACE_UNREADY_AFTER: value})
    todo = heal(healing, *vms(healing, 0, **FAILING), *vms(healing, 1, 2))
    assert healed(todo) == ["web-0"]
