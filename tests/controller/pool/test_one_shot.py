"""P25: pools whose VMs run once. Finished VMs are replaced, and a scale-in may leave running VMs alone."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kubevirt.annotations import BUSY_UNTIL, HEALED, PROTECT, REPLACE_FINISHED, SCALE_IN
from controller.kubevirt.resources import VMIS, VMS
from controller.pool.plan import plan
from controller.pool.status import outcome_notices
from controller.runtime.actions import Cause, Create, Delete, Done
from tests.builders import NOW
from tests.pool_builders import Json, pool, snapshot, vm_spec, vmi, vms
from tests.pool_healing import entry
from tests.pool_simulation import PoolSimulation

ONCE = vm_spec(run_strategy="Once")
REPLACE = {REPLACE_FINISHED: "true"}
SPARE = {**REPLACE, SCALE_IN: "finished"}
DESCENDING = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}}
OFFLINE = {"proactive": {"statePreservation": "Offline"}}


def one_shot(annotations: Json | None = None, **changes: Any) -> Any:
    return pool(**{"spec": ONCE, "annotations": {**REPLACE, **(annotations or {})}, **changes})


def planned(
    owner: Any, *, finished: int, running: int, phase: str = "Succeeded", ran_s: float = 600, **marks: Any
) -> Any:
    """The plan for a pool whose first VMs have finished, after they ran for `ran_s` seconds."""
    machines = vms(owner, *range(finished), spec=ONCE, ready=False, printable="Stopped", **marks)
    ended = [vmi(each, phase=phase, ready=False, entered_s={"Running": ran_s + 5, phase: 5}) for each in machines]
    others = vms(owner, *range(finished, finished + running), spec=ONCE)
    return plan(snapshot(owner, (*machines, *others), vmis=[*ended, *map(vmi, others)]))


def deleted(todo: Any) -> list[str]:
    return [each.key.name for each in todo.actions if isinstance(each, Delete) and each.resource is VMS]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_p25_a_finished_vm_is_deleted_with_its_disks_if_its_successor_would_be_accepted(phase: str):
    [delete] = planned(one_shot(), finished=1, running=2, phase=phase, ran_s=900).actions
    assert (delete.key.name, delete.why) == ("web-0", f"it has finished: {phase}")
    assert (delete.foreground, delete.cause, bool(delete.successor)) == (True, Cause.FINISHED, True)
    [notice] = outcome_notices([Done(delete)])
    assert not notice.warning, "it is the everyday work of the pool"
    assert deleted(planned(one_shot({REPLACE_FINISHED: "false"}), finished=1, running=2)) == []


def test_p25_surplus_finished_vms_leave_and_have_no_successor():
    todo = planned(one_shot(replicas=2), finished=2, running=1)
    assert [(each.key.name, bool(each.successor)) for each in todo.actions] == [("web-0", False), ("web-1", True)]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"scaleInStrategy": OFFLINE}, "statePreservation keeps the disks"),
        ({"spec": vm_spec()}, 'the run strategy of the template is "Always"'),
    ],
    ids=["disks", "strategy"],
)
def test_p25_a_pool_that_cannot_replace_finished_vms_says_why(changes: Json, problem: str):
    owner = one_shot(**changes)
    todo = planned(owner, finished=1, running=2)
    assert deleted(todo) == []
    [wrong] = snapshot(owner, ()).wrong_annotations
    assert wrong.text.startswith(f"annotation {REPLACE_FINISHED} has no effect: {problem}")
    assert "InvalidAnnotation" in [each.reason for each in todo.notices]


def test_p25_a_scale_in_of_finished_vms_on_another_run_strategy_is_reported():
    [wrong] = snapshot(pool(annotations={SCALE_IN: "finished"}), ()).wrong_annotations
    assert wrong.text.startswith(f"annotation {SCALE_IN} keeps every VM: the run strategy")


def test_p25_a_protected_vm_stays_and_an_event_names_it():
    todo = planned(one_shot(), finished=1, running=2, annotations={PROTECT: "true"})
    assert (deleted(todo), [each.reason for each in todo.notices]) == ([], ["HealingHeld"])


def test_p25_the_mark_of_a_busy_vm_ends_with_its_work():
    far = {BUSY_UNTIL: "2999-01-01T00:00:00Z"}
    assert deleted(planned(one_shot(), finished=1, running=2, annotations=far)) == ["web-0"]


@pytest.mark.parametrize(
    ("phase", "ran_s", "early"), [("Failed", 599, True), ("Succeeded", 59, True), ("Succeeded", 61, False)]
)
def test_p25_an_early_failure_is_noted_before_the_delete_and_the_next_one_waits(phase: str, ran_s: float, early: bool):
    todo = planned(one_shot(), finished=1, running=2, phase=phase, ran_s=ran_s)
    assert [type(each).__name__ for each in todo.actions] == [*(["Patch"] if early else []), "Delete"]
    again = one_shot({HEALED: json.dumps({"0": entry(count=3, seconds=15)})})
    later = planned(again, finished=1, running=2, phase=phase, ran_s=ran_s)
    assert deleted(later) == ([] if early else ["web-0"])
    assert (later.requeue_after_s or 0) == (25 if early else 0)


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_p25_a_vm_that_ended_without_a_run_failed_early(phase: str):
    owner = one_shot({HEALED: json.dumps({"0": entry(count=3, seconds=15)})})
    machines = vms(owner, 0, 1, 2, spec=ONCE, ready=False, printable="Stopped")
    ended = vmi(machines[0], phase=phase, ready=False, entered_s={phase: 5})
    assert deleted(plan(snapshot(owner, machines, vmis=[ended]))) == []


def test_p25_a_scale_in_gives_up_if_a_finished_vm_has_changed():
    """A user may have started the VM again since the plan was made."""
    owner = pool(replicas=1, spec=ONCE, annotations={SCALE_IN: "finished"})
    [delete] = planned(owner, finished=1, running=1).actions
    assert (delete.key.name, delete.owner_uid) == ("web-0", "")


def test_p25_finished_vms_that_stay_do_not_keep_others_from_their_turn():
    owner = one_shot(replicas=4)
    kept = vms(owner, 0, 1, spec=ONCE, ready=False, printable="Stopped", annotations={PROTECT: "true"})
    others = vms(owner, 2, 3, spec=ONCE, ready=False, printable="Stopped")
    ended = [vmi(each, phase="Failed", ready=False, entered_s={"Running": 900, "Failed": 5}) for each in kept + others]
    assert deleted(plan(snapshot(owner, (*kept, *others), vmis=ended, burst=2))) == ["web-2", "web-3"]


def end(simulation: PoolSimulation, name: str, phase: str) -> None:
    entered = {"Running": NOW, phase: simulation.now}
    times = [{"phase": each, "phaseTransitionTimestamp": at.isoformat()} for each, at in entered.items()]
    status = {"phase": phase, "phaseTransitionTimestamps": times, "conditions": []}
    simulation.server.change(VMIS, simulation.key(name), {"status": status})
    simulation.server.change(VMS, simulation.key(name), {"status": {"printableStatus": "Stopped", "conditions": []}})


STEPS = st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["Succeeded", "Failed", "pass", "crash"])), max_size=12)


@given(STEPS)
def test_p25_a_one_shot_pool_that_shrinks_deletes_no_running_vm_and_replaces_no_finished_one(steps: Any):
    simulation = PoolSimulation(one_shot(SPARE, replicas=10, scaleInStrategy=DESCENDING))
    simulation.come_to_rest()
    simulation.live_on(3600)
    simulation.change(replicas=3)
    finished: set[str] = set()
    before = len(simulation.actions)
    for number, what in steps:
        name = f"web-{number}"
        if what == "pass":
            simulation.run_passes(2)
        elif what == "crash":
            simulation.crash_in_a_pass(writes=1)
            simulation.restart()
        elif name in simulation.vms and name not in finished and len(finished) < 7:
            end(simulation, name, what)
            finished.add(name)
    simulation.run_passes(20)
    assert set(simulation.vms) == {f"web-{number}" for number in range(10)} - finished
    assert not [each for each in simulation.actions[before:] if isinstance(each, Create)]


def test_p25_a_one_shot_pool_makes_its_finished_vms_again_after_a_crash_at_any_write():
    for writes in range(4):
        simulation = PoolSimulation(one_shot(replicas=3))
        simulation.come_to_rest()
        simulation.live_on(3600)
        old = {name: each["metadata"]["uid"] for name, each in simulation.vms.items()}
        end(simulation, "web-1", "Failed")
        simulation.crash_in_a_pass(writes=writes)
        simulation.restart()
        simulation.come_to_rest()
        new = {name: each["metadata"]["uid"] for name, each in simulation.vms.items()}
        assert sorted(new) == sorted(old)
        assert {name for name in old if new[name] != old[name]} == {"web-1"}
