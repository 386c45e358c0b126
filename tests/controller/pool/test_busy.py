"""P24: a busy VM or VMI is neither deleted nor restarted before the end of its work."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kubevirt.annotations import BUSY_UNTIL, REMOVE, REPLACE_UNREADY_AFTER
from controller.kubevirt.busy import busy_reason
from controller.pool.plan import plan
from controller.pool.rules import JUDGE
from controller.replicas.catalogue import CATALOGUE, Place
from controller.replicas.wrong_annotations import message_of
from controller.runtime.actions import Delete, Restart
from tests.builders import NOW
from tests.pool_builders import pool, revision, snapshot, vm, vm_spec, vmi, vms
from tests.pool_healing import FAILING, heal, healed, healing_pool
from tests.pool_simulation import PoolSimulation

PAST, SOON, FAR = "2026-08-01T11:59:59Z", "2026-08-01T14:00:30+02:00", "2999-01-01T00:00:00Z"
DESCENDING = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}}


def until(time: str) -> dict[str, Any]:
    return {"annotations": {BUSY_UNTIL: time}}


def outdated(owner: Any, *ordinals: int, **marks: Any) -> Any:
    """The snapshot of a pool whose VMs have another image than its template."""
    old = vm_spec(image="v0")
    machines = vms(owner, *ordinals, revision="web-1", spec=old, **marks)
    revisions = [revision(pool(generation=1, spec=old), "web-1", number=1), revision(owner, "web-2", number=2)]
    return snapshot(owner, machines, vmis=[vmi(each) for each in machines], revisions=revisions)


def names(todo: Any) -> list[str]:
    return [each.key.name for each in todo.actions if isinstance(each, Delete | Restart)]


@pytest.mark.parametrize(
    ("mark", "reason"),
    {
        PAST: "",
        SOON: f"it is busy until {SOON}",
        "2h": f"it is busy: its {BUSY_UNTIL} is not a time",
        "2026-08-01T14:00:30": f"it is busy: its {BUSY_UNTIL} is not a time",
        "2026-02-31T14:00:30Z": f"it is busy: its {BUSY_UNTIL} is not a time",
    }.items(),
)
def test_p24_a_mark_counts_until_its_time_and_a_wrong_value_until_it_is_corrected(mark: str, reason: str):
    assert busy_reason(vm(**until(mark)), NOW) == reason


@pytest.mark.parametrize("text", [PAST, SOON, FAR, "2026-08-01T12:00:00.123456789Z"])
@pytest.mark.parametrize("place", [Place.VM, Place.VMI, Place.VMI_OF_VM])
def test_p24_a_time_is_a_valid_value(place: Place, text: str):
    assert message_of(BUSY_UNTIL, text, place) == ""
    assert "must be a time such as" in message_of(BUSY_UNTIL, text[:10], place)
    assert sum(each.name == BUSY_UNTIL for each in CATALOGUE) == 1


def test_p24_a_busy_vm_leaves_last_and_only_after_its_time():
    owner = pool(replicas=1, scaleInStrategy=DESCENDING)
    machines = (*vms(owner, 0, 1), *vms(owner, 2, **until(SOON)))
    assert names(plan(snapshot(owner, machines))) == ["web-1", "web-0"]
    smaller = pool(replicas=0, scaleInStrategy=DESCENDING)
    todo = plan(snapshot(smaller, machines[2:]))
    assert (names(todo), todo.requeue_after_s) == ([], 30)
    assert [(each.reason, each.message) for each in todo.notices] == [
        ("ScaleInHeld", f"web-2 is surplus, but is not deleted now: it is busy until {SOON}")
    ]
    assert names(plan(snapshot(smaller, machines[2:], now=NOW + timedelta(seconds=30)))) == ["web-2"]


def test_p24_a_mark_that_is_extended_again_and_again_is_one_reason():
    """An agent in the guest may extend its mark each minute."""
    for owner in (pool(replicas=0), pool(replicas=1, generation=2)):
        once = set()
        for time in (SOON, FAR):
            notices = plan(outdated(owner, 0, **until(time))).notices
            once |= {each.once for each in notices if each.reason in ("ScaleInHeld", "UpdateHeld")}
        assert len(once) == 1


def test_p24_the_mark_may_be_on_the_vmi():
    owner = pool(replicas=0)
    machines = vms(owner, 0, 1)
    vmis = (vmi(machines[0]), vmi(machines[1], **until(SOON)))
    assert names(plan(snapshot(owner, machines, vmis=vmis))) == ["web-0"]


def test_p24_a_busy_vm_is_neither_healed_nor_restarted_nor_deleted_with_its_pool():
    failing = healing_pool()
    machines = (*vms(failing, 0, **FAILING, **until(SOON)), *vms(failing, *range(1, 10)))
    assert healed(heal(failing, *machines)) == []
    owner = pool(generation=2, annotations={REPLACE_UNREADY_AFTER: "1"})
    assert plan(outdated(owner, 0, 1, 2, **until(SOON))).actions[1:] == ()
    assert len(plan(outdated(owner, 0, 1, 2, **until(PAST))).actions) > 1, "VMs that are not busy are updated"
    deleted = pool(deleting=True, scaleInStrategy={"proactive": {"statePreservation": "Offline"}})
    todo = plan(snapshot(deleted, vms(deleted, 0, **until(SOON))))
    assert (todo.actions, todo.requeue_after_s) == ((), 30)


def test_p24_a_vm_that_becomes_busy_after_the_plan_is_not_deleted():
    owner = pool(replicas=0)
    [delete] = plan(snapshot(owner, vms(owner, 0))).actions
    found = {delete.resource: b'{"metadata": {"annotations": {"vmherd.dev/busy-until": "%s"}}}' % SOON.encode()}
    assert JUDGE._replace(now=lambda: NOW).reason(delete, found) == f"it is busy until {SOON}"
    assert JUDGE._replace(now=lambda: NOW + timedelta(minutes=1)).reason(delete, found) == ""


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["mark", "scale", "template", "remove"])), max_size=6))
def test_p24_nothing_that_users_change_deletes_or_restarts_a_busy_vm(changes: list[tuple[int, str]]):
    simulation = PoolSimulation(pool(replicas=5))
    simulation.come_to_rest()
    busy: dict[str, str] = {}
    for number, change in changes:
        name = f"web-{number}"
        if change == "scale":
            simulation.change(replicas=number)
        elif change == "template":
            simulation.change_template(vm_spec(image=f"v{number + 2}"))
        elif name in simulation.vms:
            mark = BUSY_UNTIL if change == "mark" else REMOVE
            simulation.edit_vm(name, metadata={"annotations": {mark: FAR if change == "mark" else "true"}})
            if change == "mark" and name in simulation.vmis:
                busy[name] = simulation.vmis[name]["metadata"]["uid"]
        simulation.run_passes(3)
        assert {name: simulation.vmis[name]["metadata"]["uid"] for name in busy} == busy
