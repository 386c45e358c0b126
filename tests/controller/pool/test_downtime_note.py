"""P15: the annotation with the unready periods of a pool's VMs, and how often the controller writes the annotation."""

import json
from datetime import timedelta

from controller.kubevirt.annotations import REPLACE_UNREADY_AFTER, UNREADY
from controller.pool.healing.downtime_note import plan_unready_note
from controller.pool.members.notes import MAX_ENTRIES
from controller.runtime.actions import Patch, Plan
from informers.objects import PatchType
from tests.builders import NOW
from tests.pool_builders import POOLS, periods_after, pool, revision, situation_of, snapshot, vm_spec, vmi, vms
from tests.pool_healing import annotated, at, healing_pool

DOWN = {"ready": False, "ready_for_s": 0}


def periods(machines, seconds):
    """The unready periods of these VMs. Each VM became unready this number of seconds ago."""
    running = [vmi(each, ready=False) for each in machines]
    return periods_after(pool(), machines, vmis=running, now=NOW - timedelta(seconds=seconds))


def note_plan(owner, machines, before) -> Plan:
    return plan_unready_note(situation_of(snapshot(owner, machines, unready_before=before)))


def written(todo: Plan):
    [patch] = todo.actions
    return json.loads(json.loads(patch.body)["metadata"]["annotations"][UNREADY] or "null")


def test_p15_a_period_of_thirty_seconds_is_noted():
    owner = healing_pool()
    down, up = vms(owner, 0, **DOWN), vms(owner, 1, 2)
    early = note_plan(owner, (*down, *up), periods(down, 29))
    assert (early.actions, early.requeue_after_s) == ((), 1)
    todo = note_plan(owner, (*down, *up), periods(down, 30))
    assert written(todo) == {"0": ["uid-web-0", at(30)]}
    [patch] = todo.actions
    assert isinstance(patch, Patch)
    assert (patch.resource, patch.key, patch.type, patch.is_note) == (POOLS, owner.metadata.key, PatchType.MERGE, True)
    assert json.loads(patch.body)["metadata"]["uid"] == owner.metadata.uid


def test_p15_a_note_is_not_written_again_and_is_removed_when_no_vm_is_unready_or_it_cannot_be_parsed():
    noted = annotated(healing_pool(), UNREADY, {"0": ["uid-web-0", at(500)]})
    down = vms(noted, 0, **DOWN)
    assert note_plan(noted, (*down, *vms(noted, 1)), periods(down, 500)) == Plan()
    for owner in (noted, healing_pool(annotations={UNREADY: "rubbish"})):
        assert written(note_plan(owner, vms(owner, 0, 1), {})) is None


def test_p15_a_terminating_vm_has_no_entry_before_and_after_a_restart():
    owner = healing_pool()
    terminating = vms(owner, 0, deleting=True, **DOWN)
    before = periods(vms(owner, 0, **DOWN), 500)
    assert note_plan(owner, (*terminating, *vms(owner, 1)), before) == Plan()
    noted = annotated(owner, UNREADY, {"0": ["uid-web-0", at(500)]})
    for known in (before, {}):
        assert written(note_plan(noted, (*terminating, *vms(owner, 1)), known)) is None


def test_p15_a_write_also_notes_the_periods_that_are_almost_old_enough():
    owner = healing_pool()
    old, middle, young = vms(owner, 0, **DOWN), vms(owner, 1, **DOWN), vms(owner, 2, **DOWN)
    before = {**periods(old, 30), **periods(middle, 15), **periods(young, 14)}
    assert written(note_plan(owner, (*old, *middle, *young), before)).keys() == {"0", "1"}


def test_p15_stale_entries_are_removed_when_half_of_the_entries_are_stale():
    entries = {str(ordinal): [f"uid-web-{ordinal}", at(500)] for ordinal in range(4)}
    owner = annotated(healing_pool(), UNREADY, entries)
    down = vms(owner, 1, 2, 3, **DOWN)
    assert note_plan(owner, (*vms(owner, 0), *down), periods(down, 500)).actions == ()
    todo = note_plan(owner, (*vms(owner, 0, 1), *down[1:]), periods(down[1:], 500))
    assert written(todo) == {"2": ["uid-web-2", at(500)], "3": ["uid-web-3", at(500)]}


def test_p15_the_entry_of_a_vm_stays_until_the_vm_has_been_ready_for_thirty_seconds():
    owner = annotated(healing_pool(), UNREADY, {"0": ["uid-web-0", at(500)]})
    down, up = vms(owner, 0, **DOWN), vms(owner, 0)
    ready = periods_after(owner, up, unready_before=periods(down, 500), now=NOW - timedelta(seconds=29))
    todo = note_plan(owner, up, ready)
    assert (todo.actions, todo.requeue_after_s) == ((), 1)
    ready = periods_after(owner, up, unready_before=periods(down, 500), now=NOW - timedelta(seconds=30))
    assert written(note_plan(owner, up, ready)) is None


def test_p15_the_note_has_the_oldest_thousand_entries():
    owner = healing_pool(replicas=1200)
    machines = vms(owner, *range(1200), **DOWN)
    before = {name: each for vm in machines for name, each in periods([vm], 3000 - int(vm.metadata.name[4:])).items()}
    entries = written(note_plan(owner, machines, before))
    assert sorted(map(int, entries)) == list(range(MAX_ENTRIES))
    assert len(json.dumps(entries)) < 128 * 1024
    assert note_plan(annotated(owner, UNREADY, entries), machines, before).actions == ()


def test_p15_a_pool_in_which_nothing_depends_on_the_age_has_no_note():
    owner = pool()
    down = vms(owner, 0, **DOWN)
    assert note_plan(owner, (*down, *vms(owner, 1, 2)), periods(down, 500)) == Plan()
    for reader in (pool(autohealing={}), pool(annotations={REPLACE_UNREADY_AFTER: "600"})):
        assert written(note_plan(reader, (*down, *vms(owner, 1, 2)), periods(down, 500)))


def test_p14_a_pool_has_a_note_during_a_rollout():
    owner = pool(spec=vm_spec(image="v2"), generation=2)
    down = vms(owner, 0, **DOWN)
    seen = snapshot(
        owner,
        (*down, *vms(owner, 1, 2)),
        revisions=[revision(pool(), "web-1", number=1), revision(owner, "web-2", number=2)],
        unready_before=periods(down, 500),
    )
    assert written(plan_unready_note(situation_of(seen)))
